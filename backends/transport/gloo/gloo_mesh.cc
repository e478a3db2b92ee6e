// Connecting and shutting down the pairs of a mesh.
#include "backends/transport/gloo/gloo_mesh.h"

#include <dirent.h>
#include <fcntl.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backends/backend_error.h"

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

void GlooMesh::take_handles() {
  const std::lock_guard lock(mutex_);
  if (broken_) throw PeerError("the connection was aborted");
  handles_.clear();  // first: a listening socket and the connection accepted from it share a name
  const std::vector<OpenSocket> sockets = open_sockets();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> bytes = getPair(peer)->address().bytes();
    sockaddr_storage address{};
    std::memcpy(&address, bytes.data(), std::min(bytes.size(), sizeof address));
    const std::string name = name_of(address);
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
  for (const Socket& handle : handles_) ::shutdown(handle.fd(), SHUT_RDWR);
}

}  // namespace backends
