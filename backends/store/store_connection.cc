// Non-blocking reads and writes of one server connection.
#include "backends/store/store_connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace backends {

void StoreConnection::send(const std::string& frame) {
  if (!alive()) return;
  if (out.size() + frame.size() > 4 * kFrameBytes) {
    end = "it does not read its input";
    return;
  }
  out += seals.to_client.close(frame);
  flush();
}

void StoreConnection::flush() {
  std::size_t sent = 0;
  while (sent < out.size() && alive()) {
    const ssize_t n =
        ::send(socket.fd(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      end = std::string("its connection broke (") + std::strerror(errno) + ")";
    }
  }
  out.erase(0, sent);
  if (alive() && close_after_flush && out.empty()) end = "refused";
}

void StoreConnection::receive() {
  char buffer[65536];
  const ssize_t n = recv(socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n > 0) {
    parser.append(buffer, static_cast<std::size_t>(n));
    last_received = std::chrono::steady_clock::now();
  } else if (n == 0) {
    end = "its connection closed";
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    end = std::string("its connection broke (") + std::strerror(errno) + ")";
  }
}

}  // namespace backends
