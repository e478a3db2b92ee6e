// Explains a system call's error number to the user.
#pragma once

#include <string>

namespace base {

// Returns strerror(error), with limit_text() if a limit may be the reason.
std::string system_error_text(int error);

// Returns true if the system lacks open files or memory, which says nothing about the file.
bool is_lack_of_resources(int error);

// "; the limit of this process is 16: raise it (ulimit -n)", if a limit of this process on open
// files (EMFILE), the size of files (EFBIG) or memory (ENOMEM) can be the reason of `error`; else
// "".
std::string limit_text(int error);

}  // namespace base
