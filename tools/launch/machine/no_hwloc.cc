// Replaces hwloc_topology.cc in builds without hwloc.
#include "io/base/files/io_error.h"
#include "tools/launch/machine/cpu_topology.h"

namespace tools {

void require_topology(const std::string& option) {
  throw io::ConfigError(option +
                        ": this build has no hwloc: install libhwloc-dev and build with "
                        "ENGINE_WITH_HWLOC=ON, or leave it out");
}

CpuTopology read_topology(const std::string& option, const std::string& /*synthetic*/) {
  require_topology(option);
  return {};
}

}  // namespace tools
