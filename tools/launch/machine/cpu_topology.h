// Describes the CPUs of a host, as read by hwloc, for `--bind`.
#pragma once

#include <string>
#include <vector>

namespace tools {

struct Cpu {       // a hardware thread
  int number = 0;  // the kernel's number
  int core = 0;    // equal for CPUs of one core
  int node = 0;    // number of the memory (NUMA) node in the kernel
};
using CpuTopology = std::vector<Cpu>;  // ordered by locality

// Throws io::ConfigError that names `option`, in a build without hwloc (ENGINE_WITH_HWLOC).
void require_topology(const std::string& option);

// Returns the topology of this host or, with `synthetic`, of an artificial one in hwloc's notation:
// "numa:2 core:4 pu:2". Throws as require_topology() does, and if hwloc cannot read it.
CpuTopology read_topology(const std::string& option, const std::string& synthetic = "");

}  // namespace tools
