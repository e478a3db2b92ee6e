// Reads /proc/PID/stat.
#include "io/base/machine/process_state.h"

#include <fstream>
#include <iterator>
#include <string>

namespace base {

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(')');  // "PID (NAME) STATE ..."
  return name_end != std::string::npos &&
         (text.compare(name_end, 3, ") T") == 0 || text.compare(name_end, 3, ") t") == 0);
}

}  // namespace base
