// What a system call's error number means to a user.
#pragma once

#include <string>

namespace base {

// strerror(), and limit_text().
std::string system_error_text(int error);

// "; the limit of this process is 16: raise it (ulimit -n)", if a limit of this process on open
// files (EMFILE), the size of files (EFBIG) or memory (ENOMEM) can be the reason of `error`; else
// "".
std::string limit_text(int error);

}  // namespace base
