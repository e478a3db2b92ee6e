// Connecting and shutting down the pairs of a mesh.
#include "backends/transport/gloo/gloo_mesh.h"

#include <fcntl.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/open_files.h"
#include "io/base/stoppable_sleep.h"

namespace backends {
namespace {

constexpr int kVisitSeconds = 5;  // a peer's host that does not answer by then is gone

// Address and port as a comparable key; empty for other families.
std::string name_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    return std::string(reinterpret_cast<const char*>(&in.sin_addr), sizeof in.sin_addr) +
           std::to_string(ntohs(in.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    return std::string(reinterpret_cast<const char*>(&in.sin6_addr), sizeof in.sin6_addr) +
           std::to_string(ntohs(in.sin6_port));
  }
  return {};
}

// As Gloo publishes it.
sockaddr_storage address_in(const std::vector<char>& bytes) {
  sockaddr_storage address{};
  std::memcpy(&address, bytes.data(), std::min(bytes.size(), sizeof address));
  return address;
}

socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

struct OpenSocket {
  int fd;
  std::string name;  // local address
};

std::vector<OpenSocket> open_sockets() {
  std::vector<OpenSocket> found;
  const auto sockets = ip_sockets();
  if (!sockets) throw PeerError("cannot read /proc/self/fd, which the gloo backend needs");
  for (const IpSocket& s : *sockets) found.push_back({s.fd, name_of(s.address)});
  return found;
}

// Also of a socket that is not connected yet, of which getpeername() says nothing.
std::string name_of_destination(int fd) {
  for (const std::size_t size : {sizeof(sockaddr_in6), sizeof(sockaddr_in)}) {  // the exact one
    sockaddr_storage address{};
    auto length = static_cast<socklen_t>(size);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &length) == 0) return name_of(address);
  }
  return {};
}

std::string too_late_text(const BackendContext& context, int peer, const std::vector<char>& bytes) {
  const sockaddr_storage address = address_in(bytes);
  return "no connection with rank " + std::to_string(context.group_rank(peer)) + " at " +
         to_string(endpoint_of(reinterpret_cast<const sockaddr*>(&address), length_of(address))) +
         " within " + std::to_string(context.timeout.count()) +
         " ms; a firewall must let ranks connect to all ports of each other, not only to rank 0's";
}

// Connects as a stranger who passes.
void visit(const std::vector<char>& bytes) {
  const sockaddr_storage address = address_in(bytes);
  const Socket guest(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{kVisitSeconds, 0};
  if (setsockopt(guest.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0)
    (void)::connect(guest.fd(), reinterpret_cast<const sockaddr*>(&address), length_of(address));
}

}  // namespace

std::string plain_gloo_text(const char* text) {
  const char* end = text[0] == '[' ? std::strstr(text, "] ") : nullptr;
  return end != nullptr ? end + 2 : text;
}

GlooMesh::GlooMesh(const BackendContext& context)
    : gloo::Context(context.rank, context.world_size) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = context.address;
  device_ = gloo::transport::tcp::CreateDevice(attributes);
  transportContext_ = device_->createContext(rank, size);
  higher_sends_ = device_->createContext(rank, size);
  for (const auto& pairs : {transportContext_, higher_sends_}) {
    pairs->setTimeout(context.timeout);
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) pairs->createPair(peer);
    }
  }
  setTimeout(context.timeout);
  take_handles(context.members);
}

std::vector<std::vector<char>> GlooMesh::exchange_addresses(const BackendContext& context) {
  const auto key = [&](int from, int to) {
    return context.prefix + "/" + std::to_string(from) + "/" + std::to_string(to);
  };
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> lower = pair(true, peer).address().bytes(),
                            higher = pair(false, peer).address().bytes();
    context.store.set(key(rank, peer), std::string(lower.begin(), lower.end()) +
                                           std::string(higher.begin(), higher.end()));
  }
  std::vector<std::vector<char>> addresses(2 * static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::string both = context.store.get(key(peer, rank), context.timeout);
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    addresses[2 * static_cast<std::size_t>(peer)].assign(both.begin(), middle);
    addresses[2 * static_cast<std::size_t>(peer) + 1].assign(middle, both.end());
    context.store.remove(key(peer, rank));  // it has one reader
  }
  const std::lock_guard lock(mutex_);
  peer_names_.resize(addresses.size());
  for (std::size_t at = 0; at < addresses.size(); ++at)
    if (!addresses[at].empty()) peer_names_[at] = name_of(address_in(addresses[at]));
  return addresses;
}

// Gloo's own wait is five times its timeout, for each pair.
std::string GlooMesh::connect(const BackendContext& context) {
  const std::vector<std::vector<char>> addresses = exchange_addresses(context);
  const std::jthread breaker(
      [&](const std::stop_token& stop) { break_when_asked(stop, addresses); });
  std::atomic<bool> late = false;
  const std::jthread limit([&](const std::stop_token& stop) {
    if (!base::sleep_unless_stopped(stop, context.timeout)) return;
    late = true;
    shut_down();
  });
  std::string trouble;
  // In the same order on both sides: one listens while the other connects.
  for (std::size_t at = 0; at < addresses.size(); ++at) {
    const int peer = static_cast<int>(at / 2);
    if (peer == rank) continue;
    const bool lower_sends = at % 2 == 0;
    const std::vector<char>& address = addresses[at];
    try {
      pair(lower_sends, peer).connect(address);
    } catch (const std::exception& error) {
      if (trouble.empty())
        trouble = late ? too_late_text(context, peer, address) : plain_gloo_text(error.what());
      // A stranger at this rank's port has closed the pair: the peer would wait until the timeout
      // for the connection that is not made.
      if (!late) visit(address);
    }
  }
  return trouble;
}

// Between the start of a connection and its answer Gloo's socket has no name by which a handle of
// it could be taken; what tells it is where it goes. One may be started behind the last look.
void GlooMesh::break_when_asked(const std::stop_token& stop,
                                const std::vector<std::vector<char>>& addresses) const {
  std::set<std::string> names;
  for (const std::vector<char>& address : addresses) {
    if (!address.empty()) names.insert(name_of(address_in(address)));
  }
  std::unique_lock lock(mutex_);
  if (!broken_now_.wait(lock, stop, [this] { return broken_; })) return;
  lock.unlock();
  do {
    try {
      for (const OpenSocket& s : open_sockets()) {
        const Socket copy(fcntl(s.fd, F_DUPFD_CLOEXEC, 0));
        if (copy && names.contains(name_of_destination(copy.fd())))
          ::shutdown(copy.fd(), SHUT_RDWR);
      }
    } catch (const std::exception&) {
      // No memory or descriptors: there will be some.
    }
  } while (base::sleep_unless_stopped(stop, std::chrono::milliseconds(10)));
}

void GlooMesh::take_handles(const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  if (broken_) throw PeerError("the connection was aborted");
  handles_.clear();  // first: a listening socket and the connection accepted from it share a name
  const std::vector<OpenSocket> sockets = open_sockets();
  std::string trouble;
  const bool connected = !peer_names_.empty();
  own_names_.resize(2 * static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    for (const bool lower_sends : {rank > peer, rank < peer}) {  // in, out
      const std::size_t at = 2 * static_cast<std::size_t>(peer) + (lower_sends ? 0 : 1);
      const std::string name = name_of(address_in(pair(lower_sends, peer).address().bytes()));
      if (!connected) own_names_[at] = name;
      // The kernel gives the port from which a connection is made to others that go elsewhere.
      const bool accepted = name == own_names_[at];
      const auto found = std::ranges::find_if(sockets, [&](const OpenSocket& s) {
        return s.name == name && (accepted || name_of_destination(s.fd) == peer_names_[at]);
      });
      handles_.emplace_back(found == sockets.end() ? -1 : fcntl(found->fd, F_DUPFD_CLOEXEC, 0));
      if (!handles_.back() && trouble.empty())
        trouble = "the connection to rank " +
                  std::to_string(members[static_cast<std::size_t>(peer)]) + " closed at once";
      const int fd = handles_.back().fd();
      if (handles_.back() && is_loopback(local_endpoint(fd).host)) do_not_pace(fd);
    }
  }
  if (!trouble.empty()) throw PeerError(trouble);
}

std::string GlooMesh::waiting_text(const std::vector<int>& members) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::size_t i = 0; i < handles_.size(); i += 2) {  // those of each peer, in rank order
    const std::size_t at = i / 2, peer = at + (at >= static_cast<std::size_t>(rank) ? 1 : 0);
    const std::string of_link = silent_link_text(handles_[i].fd(), handles_[i + 1].fd(),
                                                 "rank " + std::to_string(members[peer]));
    if (!of_link.empty()) text += (text.empty() ? "" : ", ") + of_link;
  }
  return text;
}

bool GlooMesh::ended() const {
  const std::lock_guard lock(mutex_);
  std::vector<pollfd> looks;
  for (const Socket& handle : handles_) looks.push_back({handle.fd(), POLLRDHUP, 0});
  return poll(looks.data(), looks.size(), 0) > 0;
}

void GlooMesh::shut_down() noexcept {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  broken_now_.notify_all();
  for (const Socket& handle : handles_) ::shutdown(handle.fd(), SHUT_RDWR);
}

}  // namespace backends
