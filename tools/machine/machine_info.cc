// Reads the host's own tables.
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "backends/identity/host_identity.h"
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

}  // namespace

MachineInfo machine_info() {
  MachineInfo info{.host = backends::host_name(), .cpu = cpu_name(), .kernel = {}};
  utsname name{};
  if (uname(&name) == 0) info.kernel = std::string(name.sysname) + " " + name.release;
  info.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  info.allowed_cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : info.cores;
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) info.load = load[0];
  return info;
}

std::string build_text() {
  return std::string("engine ") + ENGINE_VERSION + " (commit " + ENGINE_COMMIT + ", " +
         ENGINE_COMPILER + ", " + ENGINE_BUILD_TYPE + ")";
}

std::int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string utc_text(std::int64_t us) {
  const std::time_t seconds = us / 1'000'000;
  std::tm utc{};
  char date[32] = "", text[48];
  if (gmtime_r(&seconds, &utc) != nullptr)
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(us / 1000 % 1000));
  return text;
}

}  // namespace tools
