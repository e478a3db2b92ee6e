// Description of this host for reports: CPU, cores, load, build.
#pragma once

#include <string>

namespace tools {

struct MachineInfo {
  std::string host, cpu, kernel;
  int cores = 0, allowed_cores = 0;  // online; those that this process may use
  double load = 0;                   // average of the last minute
};
MachineInfo machine_info();

std::string build_text();  // "engine 0.1.0 (commit 1a2b3c, GNU 12.2.0, Release)"

}  // namespace tools
