// What a system call's error number means to a user.
#pragma once

#include <string>

namespace base {

// strerror(); where a limit on open files is what `error` is about, also the limit and what raises
// it.
std::string system_error_text(int error);

}  // namespace base
