// Reads host and process identity from /proc.
#include "backends/identity/host_identity.h"

#include <unistd.h>

#include <climits>
#include <fstream>
#include <sstream>

namespace backends {
namespace {

std::string boot_and_space(const char* space_link) {
  char space[64] = "";
  const ssize_t n = readlink(space_link, space, sizeof space - 1);
  return machine_id() + "/" + std::string(space, n > 0 ? static_cast<std::size_t>(n) : 0);
}

}  // namespace

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name[0] != '\0' ? name : "unknown";
}

std::string machine_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? host_name() : boot;
}

std::string host_id() { return boot_and_space("/proc/self/ns/net"); }

std::string process_space() { return boot_and_space("/proc/self/ns/pid"); }

std::uint64_t process_start_time(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t after_name = line.rfind(')');  // the name may contain spaces and parentheses
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(line.substr(after_name + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace backends
