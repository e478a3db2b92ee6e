// Describes this host for reports: CPU, cores, memory, system, load, build.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tools {

struct MachineInfo {
  std::string host, cpu, kernel, system;  // system: e.g. "Debian GNU/Linux 12 (bookworm)"
  int cores = 0, allowed_cores = 0;       // online; allowed for this process
  std::int64_t memory_bytes = 0;          // available to this process
  double load = 0;                        // average over the last minute
  std::vector<std::string> limits;  // limits of control groups: "1 core by the CPU quota 1 of FILE"
};
MachineInfo machine_info();

std::string build_text();  // e.g. "engine 0.2.0 (commit 1a2b3c, GNU 12.2.0, Release)"

}  // namespace tools
