// Reads the host's own tables.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "backends/identity/host_identity.h"
#include "io/base/cpu_affinity.h"
#include "tools/machine/build_info.h"
#include "tools/machine/machine_info.h"

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
  MachineInfo info{
      .host = backends::host_name(), .cpu = cpu_name(), .kernel = {}, .system = system_name()};
  utsname name{};
  if (uname(&name) == 0) info.kernel = std::string(name.sysname) + " " + name.release;
  info.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const auto allowed = static_cast<int>(base::cpus_of_process().count());
  info.allowed_cores = allowed > 0 ? allowed : info.cores;
  info.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) info.load = load[0];
  return info;
}

std::string build_text() {
  return std::string("engine ") + ENGINE_VERSION + " (commit " + ENGINE_COMMIT + ", " +
         ENGINE_COMPILER + ", " + ENGINE_BUILD_TYPE + ")";
}

}  // namespace tools
