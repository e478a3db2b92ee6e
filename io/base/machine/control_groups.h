// The kernel's control groups that this process is in, and what they allow of CPUs.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace base {

enum class GroupVersion { k1, k2 };

// Calls `visit` with the folder of each group of `controller` ("cpu", "memory") that the process is
// in, then with those above it: their limits hold too. In a container whose groups are mounted as a
// root of their own, folders may be missing. `root` stands for / in tests.
void visit_groups(const std::string& root, const std::string& controller,
                  const std::function<void(const std::string& folder, GroupVersion)>& visit);

struct CpuQuota {
  int cpus = 1;      // so many may be kept busy; a part of one counts as one
  std::string file;  // that says so
};
// The smallest of all these groups (cpu.max, or cpu.cfs_quota_us); nothing where none has any.
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

}  // namespace base
