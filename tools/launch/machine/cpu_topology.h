// The CPUs of a host as hwloc sees them, for `--bind`.
#pragma once

#include <string>
#include <vector>

namespace tools {

struct Cpu {       // a hardware thread
  int number = 0;  // the kernel's
  int core = 0;    // the same for CPUs of one core
  int node = 0;    // of memory (NUMA), by the kernel's number
};
using CpuTopology = std::vector<Cpu>;  // neighbors stand beside each other

// Throws io::ConfigError, which names `option`, in a build without hwloc (ENGINE_WITH_HWLOC).
void require_topology(const std::string& option);

// Of this host. `synthetic`: of a made-up one instead, as hwloc describes them: "numa:2 core:4
// pu:2". Throws as require_topology(), and where hwloc cannot read it.
CpuTopology read_topology(const std::string& option, const std::string& synthetic = "");

}  // namespace tools
