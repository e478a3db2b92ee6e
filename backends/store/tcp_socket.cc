// Implements TCP with getaddrinfo, poll and non-blocking sockets.
#include "backends/store/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

// Enough for the data that the schedules keep in flight, and small enough for the processor's
// cache.
constexpr int kBufferBytes = 1 << 20;

// Setting a size disables the kernel's automatic growth, so it helps only if the kernel grants all
// of it.
bool set_buffers(int fd) {
  for (const int which : {SO_SNDBUF, SO_RCVBUF}) {
    int granted = kBufferBytes;
    socklen_t length = sizeof granted;
    if (setsockopt(fd, SOL_SOCKET, which, &granted, length) != 0 ||
        getsockopt(fd, SOL_SOCKET, which, &granted, &length) != 0 || granted < kBufferBytes)
      return false;
  }
  return true;
}

bool buffers_are_granted() {
  static const bool kGranted =
      set_buffers(Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd());
  return kGranted;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  // Use one address on every host, so that a process on [::1] cannot intercept the connection of
  // two ranks.
  const std::string host =
      endpoint.host == "localhost" ? "127.0.0.1" : without_mapping(endpoint.host);
  const int rc = getaddrinfo(host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (rc != 0)
    throw PeerError("cannot resolve host \"" + endpoint.host + "\": " + gai_strerror(rc));
  return {list, &freeaddrinfo};
}

bool is_wildcard(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string endpoint_text(const addrinfo& at) {
  return to_string(endpoint_of(at.ai_addr, at.ai_addrlen));
}

// Binds and listens; returns an empty socket and errno on failure.
Socket try_listen(const addrinfo& at) {
  Socket socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at.ai_family == AF_INET6) setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(socket.fd(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(socket.fd(), 128) != 0) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
}

bool is_own_host(const addrinfo& to) {  // only IPv4, which every host has
  if (to.ai_family != AF_INET) return false;
  sockaddr_in address{};
  std::memcpy(&address, to.ai_addr, sizeof address);
  return ntohl(address.sin_addr.s_addr) >> 24 == 127;
}

Socket try_connect(const addrinfo& to, Deadline deadline, std::string& reason) {
  Socket socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Waiting does not help: only this process could close descriptors.
  if (!socket && errno == EMFILE)
    throw Error("connecting to " + endpoint_text(to) + ": " + base::system_error_text(EMFILE));
  if (!socket) {
    reason = base::system_error_text(errno);
    return {};
  }
  int error = 0;
  if (::connect(socket.fd(), to.ai_addr, to.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd p{socket.fd(), POLLOUT, 0};
    error = ETIMEDOUT;
    if (poll(&p, 1, milliseconds_left(deadline)) > 0) {
      socklen_t length = sizeof error;
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error == ENETUNREACH && is_own_host(to))  // retries would not change it
    throw ConfigurationError(no_loopback_text(endpoint_text(to)));
  if (error != 0) {
    reason = base::system_error_text(error);
    return {};
  }
  prepare_stream(socket.fd());
  return socket;
}

struct InterfaceAddress {
  std::string name, address;
  int family;
};

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw ConfigurationError(std::string("cannot list the network interfaces: ") +
                             base::system_error_text(errno));
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back({i->ifa_name, endpoint_of(i->ifa_addr, length).host, family});
  }
  freeifaddrs(list);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.family == AF_INET && b.family != AF_INET;
  });
  return found;
}

}  // namespace

std::string without_mapping(const std::string& host) {
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1 || !IN6_IS_ADDR_V4MAPPED(&v6)) return host;
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
  return text;
}

Endpoint parse_endpoint(std::string_view text, std::string_view what) {
  const auto bad = [&](const char* why) {
    return ConfigurationError(std::string(what) + " \"" + std::string(text) + "\": " + why +
                              "; expected HOST:PORT or [IPv6]:PORT");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) throw bad("the port is missing");
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw bad("an IPv6 address needs brackets");
  }
  if (host.empty()) throw bad("the host is missing");
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) {
    throw bad("the port is not a number from 1 to 65535");
  }
  return {without_mapping(std::string(host)), number};
}

std::string to_string(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return (brackets ? "[" + endpoint.host + "]" : endpoint.host) + ":" +
         std::to_string(endpoint.port);
}

std::vector<Endpoint> resolve(const Endpoint& endpoint) {
  std::vector<Endpoint> found;
  const AddressList list = look_up(endpoint, 0);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next)
    found.push_back(endpoint_of(a->ai_addr, a->ai_addrlen));
  return found;
}

Socket listen_on(const Endpoint& endpoint, std::chrono::milliseconds timeout,
                 const ListenPurpose& purpose) {
  const std::string cannot = purpose.who + ("cannot listen on " + to_string(endpoint)) + ": ";
  const AddressList list = look_up(endpoint, AI_PASSIVE);
  const Deadline deadline = base::deadline_in(timeout);
  for (;;) {
    int taken = 0, last = 0;
    for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
      if (is_wildcard(a->ai_addr)) {
        throw ConfigurationError("refusing to listen on every interface (" + endpoint.host +
                                 "): name one address of this host");
      }
      if (Socket socket = try_listen(*a)) return socket;
      last = errno;
      if (last == EADDRINUSE) taken = last;
    }
    if (taken == 0 && last == EADDRNOTAVAIL) {
      throw ConfigurationError(cannot + "not an address of this host; " + purpose.address_hint);
    }
    if (taken == 0) throw PeerError(cannot + base::system_error_text(last));
    if (base::has_passed(deadline)) {
      throw PortTaken(cannot + (endpoint.port == 0
                                    ? "no free port; the kernel chooses from those of "
                                      "net.ipv4.ip_local_port_range"
                                    : "the port is taken by another process; choose another port"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline, std::string& reason) {
  try {
    const AddressList list = look_up(endpoint, 0);
    for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
      if (Socket socket = try_connect(*a, deadline, reason)) return socket;
    }
  } catch (const PeerError& error) {
    reason = error.what();
  }
  return {};
}

Socket start_connecting(const Endpoint& endpoint, const std::function<void(int fd)>& prepare) try {
  const AddressList list = look_up(endpoint, AI_NUMERICHOST);
  Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  prepare_stream(socket.fd());
  if (prepare) prepare(socket.fd());
  if (::connect(socket.fd(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
} catch (const PeerError&) {
  errno = EADDRNOTAVAIL;
  return {};
}

int take_connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Endpoint endpoint_of(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  getnameinfo(address, length, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, std::atoi(port)};
}

Endpoint local_endpoint(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw ConfigurationError(std::string("not a usable socket: ") + base::system_error_text(errno));
  }
  return endpoint_of(reinterpret_cast<sockaddr*>(&address), length);
}

Endpoint peer_endpoint(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return endpoint_of(reinterpret_cast<sockaddr*>(&address), length);
}

std::string peer_text(int fd) {
  const Endpoint peer = peer_endpoint(fd);
  return peer.port == 0 ? "an unknown address" : to_string(peer);
}

std::string interface_address(const std::string& name_or_address) {
  std::string known;
  const std::string address = without_mapping(name_or_address);
  for (const InterfaceAddress& i : interface_addresses()) {
    if (i.name == name_or_address || i.address == address) return i.address;
    known += (known.empty() ? "" : ", ") + i.name + " " + i.address;
  }
  throw ConfigurationError("no interface or address \"" + name_or_address +
                           "\" on this host; there are: " + known);
}

std::string no_loopback_text(const std::string& to) {
  return to + " cannot be reached: the loopback interface is down (ip link set lo up)";
}

std::string address_towards(const std::string& address) {
  // Connecting a datagram socket sends nothing; it only asks the routing table for the source
  // address.
  const AddressList list = look_up({address, 9}, AI_NUMERICHOST);
  const Socket probe(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.fd(), list->ai_addr, list->ai_addrlen) != 0) return "";
  return local_endpoint(probe.fd()).host;
}

std::string default_address() {
  // Documentation addresses (RFC 5737, RFC 3849).
  for (const char* target : {"192.0.2.1", "2001:db8::1"}) {
    if (std::string address = address_towards(target); !address.empty()) return address;
  }
  for (const InterfaceAddress& i : interface_addresses()) {
    if (i.address.rfind("127.", 0) != 0 && i.address != "::1" && i.address.rfind("fe80:", 0) != 0)
      return i.address;
  }
  return "127.0.0.1";
}

CallWait silent_link(int in, int out, const std::string& peer) {
  tcp_info info{};
  socklen_t length = sizeof info;
  int unacknowledged = 0;
  if (getsockopt(in, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      ioctl(out, SIOCOUTQ, &unacknowledged) != 0)
    return {};
  std::string text;
  if (info.tcpi_last_data_recv >= 1000) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", info.tcpi_last_data_recv / 1000.0);
    text = "nothing received from " + peer + " for " + seconds;
  }
  if (unacknowledged > 0)
    text += (text.empty() ? "" : ", ") + std::to_string(unacknowledged) + " bytes to " + peer +
            " not acknowledged";
  return {text, unacknowledged > 0};
}

void bound_buffers(int fd) {
  if (buffers_are_granted()) {
    set_buffers(fd);
  } else {
    const int window = 2 * kBufferBytes;
    setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window, sizeof window);
  }
}

// The kernel doubles the sizes. If it does not grant them, it holds its own default maximum to
// be sent, 4 MiB, and a window of received bytes.
std::size_t bytes_in_flight() {
  return buffers_are_granted() ? 4 * static_cast<std::size_t>(kBufferBytes) : kMaxBytesInFlight;
}

void keep_alive(int fd, const KeepAlive& times) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, times.idle_seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, times.interval_seconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, times.max_unanswered);
}

bool send_at_once(int fd, std::string_view bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

void prepare_stream(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) | FD_CLOEXEC);
}

void do_not_pace(int fd) {
  constexpr std::string_view kReno = "reno";  // every kernel has it
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 &&
      std::string_view(name).starts_with("bbr"))
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

}  // namespace backends
