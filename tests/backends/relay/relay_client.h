// A rank's side of a relay, step by step.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "backends/relay/relay_server.h"
#include "io/base/time/deadline.h"
#include "tests/support/time_limits.h"

namespace relay_client {

using backends::RelayEnd;
using backends::RelayHello;

inline const backends::Secret kSecret{std::string(32, 'j'), "this test"};

// Reads `count` bytes; fewer if the stream ends or the time passes.
inline std::string read_bytes(const backends::Socket& socket, std::size_t count) {
  const auto until = base::deadline_in(
      test_support::deadline(std::chrono::milliseconds(std::chrono::seconds(20))));
  std::string all;
  std::vector<char> buffer(1 << 16);
  while (all.size() < count && !base::has_passed(until)) {
    pollfd p{socket.fd(), POLLIN, 0};
    if (poll(&p, 1, base::milliseconds_left(until)) <= 0) break;
    const ssize_t n =
        recv(socket.fd(), buffer.data(), std::min(buffer.size(), count - all.size()), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) break;
    all.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return all;
}

inline void send_bytes(const backends::Socket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      pollfd p{socket.fd(), POLLOUT, 0};
      if (poll(&p, 1, 60'000) <= 0) break;
      continue;
    }
    if (n <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  EXPECT_TRUE(bytes.empty());
}

// The stream has ended, or broken.
inline bool is_closed(const backends::Socket& socket) { return read_bytes(socket, 1).empty(); }

inline backends::Socket connect_to(const backends::Endpoint& relay) {
  std::string reason;
  backends::Socket socket = backends::connect_to(
      relay, base::deadline_in(test_support::deadline(std::chrono::seconds(20))), reason);
  EXPECT_TRUE(socket) << reason;
  if (socket) backends::prepare_stream(socket.fd());
  return socket;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline RelayHello hello_for(RelayEnd end, const std::string& pair, const std::string& job = "j") {
  const bool accepts = end == RelayEnd::kAcceptor;
  return backends::make_relay_hello(end, accepts ? 1 : 2, accepts ? 2 : 1,
                                    keyed_hash(kSecret, "pair", pair), job);
}

// Connects and proves `secret`; does not wait for the other end.
inline backends::Socket enter(const backends::Endpoint& relay, RelayEnd end,
                              const std::string& pair, const backends::Secret& secret = kSecret) {
  backends::Socket socket = connect_to(relay);
  const RelayHello hello = hello_for(end, pair);
  send_bytes(socket, bytes_of(hello));
  backends::RelayChallenge challenge;
  const std::string got = read_bytes(socket, sizeof challenge);
  EXPECT_EQ(got.size(), sizeof challenge);
  if (got.size() == sizeof challenge) std::copy(got.begin(), got.end(), challenge.nonce);
  EXPECT_EQ(proves_relay(secret, hello, challenge), secret.key == kSecret.key);
  send_bytes(socket, relay_rank_proof(secret, hello, challenge));
  return socket;
}

inline bool is_joined(const backends::Socket& socket) {
  return read_bytes(socket, 1) == std::string(1, backends::kRelayJoined);
}

struct Pair {
  backends::Socket acceptor, connector;
};
inline Pair join(const backends::Endpoint& relay, const std::string& pair) {
  Pair both{enter(relay, RelayEnd::kAcceptor, pair), enter(relay, RelayEnd::kConnector, pair)};
  EXPECT_TRUE(is_joined(both.acceptor));
  EXPECT_TRUE(is_joined(both.connector));
  return both;
}

// A relay on loopback, and its lines.
class Relay {
 public:
  explicit Relay(std::size_t max_links = 4096,
                 std::chrono::milliseconds pairing_timeout = std::chrono::minutes(1))
      : server_({.listener = backends::listen_on({"127.0.0.1", 0}),
                 .secret = kSecret,
                 .max_links = max_links,
                 .pairing_timeout = pairing_timeout,
                 .report = [this](const std::string& line) { add(reports_, line); },
                 .notice = [this](const std::string& line) { add(notices_, line); }}) {}
  backends::Endpoint endpoint() const { return server_.endpoint(); }
  std::vector<std::string> reports() const { return copy(reports_); }
  std::vector<std::string> notices() const { return copy(notices_); }

 private:
  void add(std::vector<std::string>& lines, const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines.push_back(line);
  }
  std::vector<std::string> copy(const std::vector<std::string>& lines) const {
    const std::lock_guard lock(mutex_);
    return lines;
  }
  mutable std::mutex mutex_;
  std::vector<std::string> reports_, notices_;
  backends::RelayServer server_;
};

}  // namespace relay_client
