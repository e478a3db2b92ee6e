// Finds the kernel's control groups that this process is in, and their CPU limits.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace base {

enum class GroupVersion { k1, k2 };

// Calls `visit` with the folder of each group of `controller` ("cpu", "memory") that the process is
// in, then with the parent groups, whose limits apply as well. In a container whose groups are
// mounted as a separate root, folders may be missing. `root` replaces / in tests.
void visit_groups(const std::string& root, const std::string& controller,
                  const std::function<void(const std::string& folder, GroupVersion)>& visit);

struct CpuQuota {
  int cpus = 1;      // CPUs that may be kept busy; a fraction of one counts as one
  std::string file;  // the file that sets the limit
};
// Returns the smallest quota of all these groups (cpu.max, or cpu.cfs_quota_us), if any has one.
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

}  // namespace base
