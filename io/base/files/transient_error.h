// Tells errors of non-blocking calls that say nothing of the descriptor.
#pragma once

#include <cerrno>

namespace base {

// Returns true if a read or write of a non-blocking descriptor can be made again later: it would
// have waited, or a signal interrupted it.
inline bool is_transient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace base
