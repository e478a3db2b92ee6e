// Connecting and shutting down the pairs of a mesh.
#include "backends/transport/gloo/gloo_mesh.h"

#include <dirent.h>
#include <fcntl.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/stoppable_sleep.h"

namespace backends {
namespace {

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

// Of an address as Gloo publishes it.
std::string name_of(const std::vector<char>& bytes) {
  sockaddr_storage address{};
  std::memcpy(&address, bytes.data(), std::min(bytes.size(), sizeof address));
  return name_of(address);
}

struct OpenSocket {
  int fd;
  std::string name;  // local address
};

std::vector<OpenSocket> open_sockets() {
  std::vector<OpenSocket> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) throw PeerError("cannot read /proc/self/fd, which the gloo backend needs");
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const int fd = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (*end != '\0') continue;
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if (std::string name = name_of(address); !name.empty()) found.push_back({fd, std::move(name)});
  }
  closedir(folder);
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
  transportContext_->setTimeout(context.timeout);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) transportContext_->createPair(peer);
  }
  setTimeout(context.timeout);
  take_handles();
}

std::string GlooMesh::connect(const BackendContext& context) {
  const auto key = [&](int from, int to) {
    return context.prefix + "/" + std::to_string(from) + "/" + std::to_string(to);
  };
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> address = getPair(peer)->address().bytes();
    context.store.set(key(rank, peer), std::string_view(address.data(), address.size()));
  }
  std::vector<std::vector<char>> addresses(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::string address = context.store.get(key(peer, rank), context.timeout);
    addresses[static_cast<std::size_t>(peer)].assign(address.begin(), address.end());
    context.store.remove(key(peer, rank));  // it has one reader
  }
  const std::jthread breaker(
      [&](const std::stop_token& stop) { break_when_asked(stop, addresses); });
  std::string trouble;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const std::exception& error) {
      if (trouble.empty()) trouble = plain_gloo_text(error.what());
    }
  };
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank)
      attempt([&] { getPair(peer)->connect(addresses[static_cast<std::size_t>(peer)]); });
  }
  attempt([&] { take_handles(); });
  return trouble;
}

// Between the start of a connection and its answer Gloo's socket has no name by which a handle of
// it could be taken; what tells it is where it goes. One may be started behind the last look.
void GlooMesh::break_when_asked(const std::stop_token& stop,
                                const std::vector<std::vector<char>>& addresses) const {
  std::set<std::string> names;
  for (const std::vector<char>& address : addresses) {
    if (!address.empty()) names.insert(name_of(address));
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

void GlooMesh::take_handles() {
  const std::lock_guard lock(mutex_);
  if (broken_) throw PeerError("the connection was aborted");
  handles_.clear();  // first: a listening socket and the connection accepted from it share a name
  const std::vector<OpenSocket> sockets = open_sockets();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::string name = name_of(getPair(peer)->address().bytes());
    const auto found = std::find_if(sockets.begin(), sockets.end(),
                                    [&](const OpenSocket& s) { return s.name == name; });
    if (found == sockets.end())
      throw PeerError("the connection to rank " + std::to_string(peer) + " closed at once");
    handles_.emplace_back(fcntl(found->fd, F_DUPFD_CLOEXEC, 0));
  }
}

std::string GlooMesh::waiting_text(const std::vector<int>& members) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::size_t i = 0; i < handles_.size(); ++i) {  // one for each peer, in rank order
    const std::size_t peer = i + (i >= static_cast<std::size_t>(rank) ? 1 : 0);
    const std::string of_link =
        silent_link_text(handles_[i].fd(), "rank " + std::to_string(members[peer]));
    if (!of_link.empty()) text += (text.empty() ? "" : ", ") + of_link;
  }
  return text;
}

void GlooMesh::shut_down() noexcept {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  broken_now_.notify_all();
  for (const Socket& handle : handles_) ::shutdown(handle.fd(), SHUT_RDWR);
}

}  // namespace backends
