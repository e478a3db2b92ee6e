// Converts hwloc's tree to a list of CPUs.
#include <hwloc.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "io/base/files/io_error.h"
#include "tools/launch/machine/cpu_topology.h"

namespace tools {

void require_topology(const std::string& /*option*/) {}

CpuTopology read_topology(const std::string& option, const std::string& synthetic) {
  // hwloc prints errors of its own, e.g. without /sys; what is missing here is reported below.
  setenv("HWLOC_HIDE_ERRORS", "2", /*overwrite=*/0);
  hwloc_topology_t made = nullptr;
  const auto refuse = [&] {
    throw io::ConfigError(option + ": hwloc cannot read the topology of " +
                          (synthetic.empty() ? "this host" : "'" + synthetic + "'") + ": " +
                          std::strerror(errno));
  };
  if (hwloc_topology_init(&made) != 0) refuse();
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      made, &hwloc_topology_destroy);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(made, synthetic.c_str()) != 0) refuse();
  if (hwloc_topology_load(made) != 0) refuse();

  CpuTopology cpus;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(made, HWLOC_OBJ_PU, pu));) {
    const auto number = static_cast<int>(pu->os_index);
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(made, HWLOC_OBJ_CORE, pu);
    Cpu cpu{.number = number, .core = core ? static_cast<int>(core->logical_index) : -1 - number};
    // Several kinds of memory may be near a CPU (HBM): its first node represents all.
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(made, HWLOC_OBJ_NUMANODE, node));)
      if (hwloc_bitmap_isset(node->cpuset, pu->os_index)) {
        cpu.node = static_cast<int>(node->os_index);
        break;
      }
    cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace tools
