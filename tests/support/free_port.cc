// Free ports, reserved by names that the kernel forgets with the process.
#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>

namespace test_support {
namespace {

constexpr int kFirst = 12'000, kLast = 29'399;  // others use 29500, the usual port

// A name in the kernel's own space of names, like ports one for each network namespace, and gone
// with the process. The descriptor stays open until then.
bool reserve(int port) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "engine-test-port-" + std::to_string(port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());  // the first byte stays 0
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0) return true;
  close(fd);
  return false;
}

bool is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

int last_port() {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");  // "32768	60999"
  int chosen_from = kLast + 1;
  range >> chosen_from;
  return chosen_from > kFirst + 1000 && chosen_from <= kLast ? chosen_from - 1 : kLast;
}

}  // namespace

int free_ports(int count) {
  static std::mutex mutex;
  static int next = getpid() * 37;
  const std::lock_guard lock(mutex);
  const int ports = last_port() - kFirst + 1;
  for (int tried = 0, in_a_row = 0; tried < ports; ++tried, ++next) {
    const int port = kFirst + next % ports;
    if (port == kFirst) in_a_row = 0;
    in_a_row = reserve(port) && is_free(port) ? in_a_row + 1 : 0;
    if (in_a_row == count) {
      ++next;
      return port - count + 1;
    }
  }
  throw std::runtime_error("no " + std::to_string(count) + " free ports in a row");
}

}  // namespace test_support
