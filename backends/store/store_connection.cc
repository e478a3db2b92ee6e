// Implements non-blocking reads and writes of one server connection.
#include "backends/store/store_connection.h"

#include <sys/socket.h>

#include <cerrno>

#include "io/base/files/system_error_text.h"
#include "io/base/files/transient_error.h"

namespace backends {
namespace {

std::string broken_text(int error) {
  return "its connection broke (" + base::system_error_text(error) + ")";
}

// Linux reports EPIPE if the other kernel has finished the connection first, also if a reset
// followed.
Ending ending_of(int error) { return error == EPIPE ? Ending::kFinished : Ending::kBroken; }

}  // namespace

std::string StoreConnection::flush() {
  std::size_t sent = 0;
  std::string end;
  while (sent < out.size() && end.empty()) {
    const ssize_t n =
        ::send(socket.fd(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      ending = ending_of(errno);
      end = broken_text(errno);
    }
  }
  out.erase(0, sent);
  return end;
}

std::string StoreConnection::receive(std::string& bytes) {
  char buffer[65536];
  const ssize_t n = recv(socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n > 0) {
    bytes.append(buffer, static_cast<std::size_t>(n));
  } else if (n == 0) {
    ending = Ending::kFinished;
    return "its connection closed";
  } else if (!base::is_transient(errno)) {
    ending = ending_of(errno);
    return broken_text(errno);
  }
  return "";
}

}  // namespace backends
