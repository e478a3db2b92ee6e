// Reads the host's tables.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "backends/identity/host_identity.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/text/memory_text.h"
#include "tools/launch/machine/machine_info.h"
#include "tools/launch/machine/memory_info.h"
#include "tools/report/output/build_info.h"

namespace tools {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown CPU";
}

std::string system_name() {
  std::ifstream file("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kKey)) {
      std::string name = line.substr(kKey.size());
      std::erase_if(name, [](char c) { return c == '"' || c == '\''; });
      return name;
    }
  return "";
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info{.host = backends::host_name(),
                   .cpu = cpu_name(),
                   .kernel = {},
                   .system = system_name(),
                   .limits = {}};
  utsname name{};
  if (uname(&name) == 0) info.kernel = std::string(name.sysname) + " " + name.release;
  info.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  info.allowed_cores = base::count_of_cpus();
  if (const std::string limit = base::cpu_limit_text(); !limit.empty())
    info.limits.push_back(std::to_string(info.allowed_cores) +
                          (info.allowed_cores == 1 ? " core by " : " cores by ") + limit);
  info.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const std::optional<MemoryLimit> memory =
      memory_limit(static_cast<std::uint64_t>(info.memory_bytes));
  if (memory) {
    info.memory_bytes = static_cast<std::int64_t>(memory->bytes);
    info.limits.push_back(base::memory_text(memory->bytes) + " of memory by " + memory->file);
  }
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) info.load = load[0];
  return info;
}

std::string build_text() {
  return std::string("engine ") + ENGINE_VERSION + " (commit " + ENGINE_COMMIT + ", " +
         ENGINE_COMPILER + ", " + ENGINE_BUILD_TYPE + ")";
}

}  // namespace tools
