// Authenticated TCP connections from this rank to all others; another thread can wake a waiting
// one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/abort_state.h"
#include "backends/backend.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/socket/mesh_link.h"
#include "io/base/files/wake_event.h"

namespace backends {

class MeshConnector;
class MeshRepair;

class SocketMesh {
 public:
  // Collective: listens on context.address, publishes the port in the store, and connects. The rank
  // with the higher number connects to the other. Unauthenticated connections cost only a bounded
  // time. Throws PeerError at the timeout, naming the missing ranks, and if the watch reports a
  // failure; AuthenticationError if the process at a rank's address does not know the secret;
  // MismatchError if ranks differ in the number of connections or in their encryption.
  // With context.link_patience, broken connections are restored. `is_memory_stable`: as of
  // MeshLink::Resuming.
  explicit SocketMesh(const BackendContext& context, bool is_memory_stable = false);
  ~SocketMesh();
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  int streams() const { return streams_; }
  // Non-blocking. REQUIRES: peer is another rank.
  int fd(int peer, int stream) const { return links_[index(peer, stream)]->fd(); }
  // Sends and receives on that connection, encrypted with context.cipher.
  MeshLink& link(int peer, int stream) { return *links_[index(peer, stream)]; }

  // Returns true if the peers run on this host, so that packets show their cores.
  bool on_loopback() const noexcept { return on_loopback_; }

  // Returns true if rank 0 found more ranks than cores on this host; the same on all.
  bool is_oversubscribed() const noexcept { return oversubscribed_; }

  // Returns true if broken connections are restored.
  bool resumes() const noexcept { return resuming_.replay_bytes > 0; }
  // From now on a break is final: for a caller that fails. The memory of sent bytes is not read.
  void end_resuming() noexcept;

  // Any thread; does not throw. Wakes the caller and shuts down sending: peers that wait
  // for this rank see the end of the stream.
  void abort(std::string_view reason) noexcept;
  bool aborted() const noexcept { return abort_.is_aborted(); }
  std::string abort_reason() const { return abort_.reason(); }
  // A caller that waits for its connections also waits for this one to become readable, which it
  // does after abort() and after a connection was restored, and calls take_wake() afterwards: a
  // poll() that has begun before does not see what comes over the new connection.
  int wake_fd() const { return wake_.fd(); }
  void take_wake() noexcept;
  // Same as Communicator::current_wait(); members[r] is rank r's number for it. Any thread.
  CallWait current_wait(const std::vector<int>& members) const;

 private:
  friend class MeshRepair;
  std::size_t index(int peer, int stream) const {
    return static_cast<std::size_t>(peer) * static_cast<std::size_t>(streams_) +
           static_cast<std::size_t>(stream);
  }

  bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  void wake_repairs() noexcept;
  void wake_caller() noexcept;

  const int streams_;
  const bool on_loopback_;
  bool oversubscribed_ = false;
  std::vector<std::unique_ptr<MeshLink>> links_;  // [peer][stream]; null for this rank
  const base::WakeEvent wake_, repair_wake_;
  AbortState abort_;
  std::atomic<bool> ended_{false};
  MeshLink::Resuming resuming_;
  std::unique_ptr<MeshConnector> connector_;  // while connections are restored
  std::unique_ptr<MeshRepair> repair_;
  std::jthread repairs_;
};

}  // namespace backends
