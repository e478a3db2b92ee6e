// Connections of tests to a page of this host.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/time_limits.h"

namespace http_client {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket that is closed with it.
struct Socket {
  Socket() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() { close(fd); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int fd;
};

inline std::unique_ptr<Socket> connected(int port) {
  auto client = std::make_unique<Socket>();
  const sockaddr_in address = loopback(port);
  const timeval limit{test_support::deadline_ms(20'000) / 1000, 0};
  setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(client->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return client;
}

inline void send_text(const Socket& to, const std::string& text) {
  static_cast<void>(send(to.fd, text.data(), text.size(), MSG_NOSIGNAL));
}

// All that the server says to this request, head and body.
inline std::string answer(int port, const std::string& request) {
  const auto client = connected(port);
  send_text(*client, request);
  std::string all;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(client->fd, buffer, sizeof buffer, 0)) > 0;)
    all.append(buffer, static_cast<std::size_t>(n));
  return all;
}

}  // namespace http_client
