// Repeats system calls that were interrupted by a signal.
#pragma once

#include <cerrno>

namespace base {

// `call` returns the result of a system call: negative with errno set. Do not use it for close(),
// which has closed the descriptor even if it was interrupted, nor if a signal should end the wait.
//   const int fd = base::retry_on_eintr([&] { return open(path, O_RDONLY | O_CLOEXEC); });
template <typename Call>
auto retry_on_eintr(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace base
