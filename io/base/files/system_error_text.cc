// Uses strerror() and getrlimit().
#include "io/base/files/system_error_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace base {
namespace {

struct Limit {
  int error;
  decltype(RLIMIT_NOFILE) resource;
  rlim_t unit;
  const char* unit_name;
  const char* option;  // of the shell's ulimit
};
constexpr Limit kLimits[] = {
    {EMFILE, RLIMIT_NOFILE, 1, "", "-n"},
    {EFBIG, RLIMIT_FSIZE, 1024, " KiB", "-f"},
    {ENOMEM, RLIMIT_AS, 1024, " KiB", "-v"},
};

}  // namespace

std::string limit_text(int error) {
  for (const Limit& limit : kLimits) {
    rlimit now{};
    if (limit.error != error || getrlimit(limit.resource, &now) != 0 ||
        now.rlim_cur == RLIM_INFINITY)
      continue;
    const bool whole = now.rlim_cur % limit.unit == 0;
    return "; the limit of this process is " +
           std::to_string(whole ? now.rlim_cur / limit.unit : now.rlim_cur) +
           (whole ? limit.unit_name : " bytes") + ": raise it (ulimit " + limit.option + ")";
  }
  return "";
}

bool is_lack_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

std::string system_error_text(int error) { return std::strerror(error) + limit_text(error); }

}  // namespace base
