// Reads /proc/self/cgroup and the groups' files.
#include "io/base/machine/control_groups.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace base {
namespace {

void visit_upwards(const std::string& mount, std::string path, GroupVersion version,
                   const std::function<void(const std::string&, GroupVersion)>& visit) {
  if (path == "/") path.clear();
  for (;;) {
    visit(mount + path, version);
    const std::size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.erase(slash);
  }
}

struct Share {
  double quota = 0, period = 0;  // microseconds
};

// Returns nothing if there is no limit: "max", or -1.
std::optional<Share> share_of(const std::string& folder, GroupVersion version, std::string& file) {
  Share share;
  bool read = false;
  if (version == GroupVersion::k2) {
    file = folder + "/cpu.max";
    std::ifstream numbers(file);
    read = static_cast<bool>(numbers >> share.quota >> share.period);
  } else {
    file = folder + "/cpu.cfs_quota_us";
    read = std::ifstream(file) >> share.quota &&
           std::ifstream(folder + "/cpu.cfs_period_us") >> share.period;
  }
  if (!read || share.quota <= 0 || share.period <= 0) return std::nullopt;
  return share;
}

}  // namespace

void visit_groups(const std::string& root, const std::string& controller,
                  const std::function<void(const std::string&, GroupVersion)>& visit) {
  const std::string mounts = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "ID:CONTROLLERS:PATH"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) {
      visit_upwards(mounts, path, GroupVersion::k2, visit);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      // The hierarchy is mounted under the names of all its controllers, and usually each name has
      // a link.
      std::error_code ignored;
      const bool linked = std::filesystem::exists(mounts + "/" + controller, ignored);
      visit_upwards(mounts + "/" + (linked ? controller : controllers), path, GroupVersion::k1,
                    visit);
    }
  }
}

std::optional<CpuQuota> cpu_quota(const std::string& root) {
  constexpr double kMost = 1 << 20;
  std::optional<CpuQuota> least;
  visit_groups(root, "cpu", [&](const std::string& folder, GroupVersion version) {
    std::string file;
    const std::optional<Share> share = share_of(folder, version, file);
    if (!share) return;
    const int cpus = static_cast<int>(std::min(std::ceil(share->quota / share->period), kMost));
    if (!least || cpus < least->cpus) least = CpuQuota{cpus, file};
  });
  return least;
}

}  // namespace base
