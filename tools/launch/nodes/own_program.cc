// Reads /proc/self/exe and the kernel's auxiliary vector.
#include "tools/launch/nodes/own_program.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace tools {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

}  // namespace

std::string own_path() {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink(kSelf, failure);
  if (!failure) return self.string();
  // The name with which the program was started.
  const auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  const std::filesystem::path path =
      std::filesystem::canonical(name == nullptr ? "" : name, failure);
  if (failure || access(path.c_str(), X_OK) != 0)
    throw std::runtime_error(std::string("cannot read ") + kSelf +
                             ", and do not know this program's file without: mount /proc");
  return path.string();
}

std::string own_program() { return access(kSelf, X_OK) == 0 ? kSelf : own_path(); }

}  // namespace tools
