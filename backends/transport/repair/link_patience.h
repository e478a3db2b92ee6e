// Detects cut connections, and composes the lines about them, for transports that restore them.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "backends/backend_error.h"
#include "backends/store/tcp_socket.h"

namespace backends {

inline std::string patience_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(time.count()) / 1000);
  return text;
}

// Why a link is given up at the end of the patience; `reach`: what the failure detector knows.
inline std::string no_connection_text(const std::string& what, std::chrono::milliseconds patience,
                                      const std::string& reach) {
  return what + " within " + patience_text(patience) + " (--link-patience)" +
         after_semicolon(reach);
}

// Why a link is given up at once.
inline std::string refused_text(const std::string& address, const std::string& peer) {
  return address + " refuses connections: the process of " + peer + " has ended";
}

inline std::string lost_link_text(const std::string& peer, const std::string& cause,
                                  std::chrono::milliseconds patience) {
  return "lost the connection to " + peer + " (" + cause + "); trying to connect again for up to " +
         patience_text(patience);
}

inline std::string restored_link_text(const std::string& peer, std::chrono::nanoseconds time,
                                      std::uint64_t bytes) {
  return "the connection to " + peer + " is back after " +
         patience_text(std::chrono::duration_cast<std::chrono::milliseconds>(time)) + "; " +
         std::to_string(bytes) + " bytes are sent again";
}

// Makes the kernel find within a third of the patience that an idle connection is cut.
inline void notice_silence(int fd, std::chrono::milliseconds patience) {
  constexpr int kMaxIdleSeconds = 15;  // routers forget idle connections
  constexpr int kTries = 3;
  const auto sixth = std::chrono::floor<std::chrono::seconds>(patience / (2 * kTries));
  const int seconds = std::clamp(static_cast<int>(sixth.count()), 1, kMaxIdleSeconds);
  keep_alive(fd, {.idle_seconds = seconds, .interval_seconds = 1, .max_unanswered = kTries});
}

// Data are not acknowledged, and nothing else comes. (TCP_USER_TIMEOUT would also end a connection
// whose peer is alive and does not read.)
inline bool is_silent(int fd, std::chrono::milliseconds limit) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked > 0 &&
         info.tcpi_retransmits > 0 && info.tcpi_last_ack_recv >= limit.count();
}

}  // namespace backends
