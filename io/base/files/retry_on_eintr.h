// System calls that a signal interrupted, called again.
#pragma once

#include <cerrno>

namespace base {

// `call` returns what a system call does: below 0 with errno. Not for close(), which has closed the
// descriptor also when it was interrupted, and not where a signal is to end the wait.
//   const int fd = base::retry_on_eintr([&] { return open(path, O_RDONLY | O_CLOEXEC); });
template <typename Call>
auto retry_on_eintr(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace base
