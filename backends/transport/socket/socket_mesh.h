// Authenticated TCP connections from this rank to every other, and a way for another thread to wake
// a waiter.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"

namespace backends {

class SocketMesh {
 public:
  // Collective: listens on context.address, publishes the port in the store, and connects. The rank
  // with the higher number is the one that connects. Strangers at the port cost a bounded time and
  // nothing else. Throws PeerError at the timeout, naming who is missing, and when the watch knows
  // of a failure; AuthenticationError when what answers in a rank's place does not know the secret;
  // MismatchError when ranks differ in the number of connections.
  explicit SocketMesh(const BackendContext& context);
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  int streams() const { return streams_; }
  // Non-blocking. REQUIRES: peer is another rank.
  int fd(int peer, int stream) const { return sockets_[index(peer, stream)].fd(); }

  // Whether the peers' packets come from their own cores of this host.
  bool on_loopback() const noexcept { return on_loopback_; }

  // Any thread; does not throw. Makes wake_fd() readable for good and ends what this rank sends:
  // peers that wait for it see the end of the stream.
  void abort(std::string_view reason) noexcept;
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  std::string abort_reason() const;
  int wake_fd() const { return wake_.fd(); }

 private:
  friend class MeshSetup;
  std::size_t index(int peer, int stream) const {
    return static_cast<std::size_t>(peer) * static_cast<std::size_t>(streams_) +
           static_cast<std::size_t>(stream);
  }

  const int streams_;
  const bool on_loopback_;
  std::vector<Socket> sockets_;  // [peer][stream]
  Socket wake_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace backends
