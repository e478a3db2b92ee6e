// Explains a system call's error number to the user.
#pragma once

#include <string>

namespace base {

// Returns strerror(error); if `error` is about a limit on open files, also the limit and the way to
// raise it.
std::string system_error_text(int error);

}  // namespace base
