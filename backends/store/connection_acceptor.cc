// Implements the pause.
#include "backends/store/connection_acceptor.h"

#include <cerrno>

#include "io/base/files/system_error_text.h"
#include "io/base/files/transient_error.h"

namespace backends {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Returns true if the next connection can be accepted: none waits, or one has ended before.
bool can_accept_next(int error) { return base::is_transient(error) || error == ECONNABORTED; }

}  // namespace

Socket ConnectionAcceptor::accept(int listener) {
  Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int error = errno;
  if (socket || can_accept_next(error)) return socket;
  pause_end_ = base::deadline_in(kAcceptPause);
  if (const auto notice = std::exchange(notice_, {}))
    notice(who_ + "cannot accept a connection: " + base::system_error_text(error) +
           "; trying again");
  errno = error;
  return socket;
}

}  // namespace backends
