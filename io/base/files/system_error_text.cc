// Uses strerror() and RLIMIT_NOFILE.
#include "io/base/files/system_error_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace base {

std::string system_error_text(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    text += "; the limit of this process is " + std::to_string(limit.rlim_cur) +
            ": raise it (ulimit -n)";
  return text;
}

}  // namespace base
