// One connection between two ranks as a stream of bytes that outlives breaks.
//
// After a break both ends state how many bytes they have received, and each sends the rest of what
// it has sent again, over a new connection with new keys. Callers notice only that nothing moves
// meanwhile. mesh_repair.cc makes the new connection, in a thread of the mesh.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "backends/secure/record_stream.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/repair/replay_buffer.h"
#include "backends/transport/socket/link_counters.h"

namespace backends {

// One caller at a time, and the mesh's thread. Allocates nothing between breaks.
// structure: half of the functions are for the mesh's thread, with the same lock
class MeshLink {
 public:
  struct Resuming {
    std::size_t replay_bytes = 0;  // 0: a break is final
    // The caller's memory does not change before copy_unacknowledged(). If false, send() copies.
    bool is_memory_stable = false;
    std::function<void()> on_break = {};  // wakes the mesh's thread
  };
  // `socket` is connected and non-blocking.
  MeshLink(Socket socket, const LinkKeys& keys, Resuming resuming);

  // The same for all connections, one after the other. A poll() that runs while a connection
  // replaces another may miss the data of the newer one: SocketMesh::wake_fd() ends it.
  int fd() const { return socket_.fd(); }
  // Returns the sums over all connections; none if the kernel has no counters.
  std::optional<LinkCounters> counters() const;

  // As of RecordStream. If the connection breaks and may be resumed, they return -1 and EAGAIN, as
  // until it is back. If it was given up, -1 and EPIPE, for error_text().
  ssize_t send(std::span<iovec> parts);
  ssize_t receive(std::span<iovec> parts);
  std::string error_text(int error) const;

  // The peer has the first `position` bytes that were sent.
  void acknowledge(std::uint64_t position);
  // From now on the memory of sent bytes may change.
  void copy_unacknowledged();
  // The same as copy_unacknowledged(), and a later break is final: for a caller that fails.
  void end_resuming() noexcept;

  bool resumes() const { return replay_.has_value(); }
  bool is_down() const { return state_.load(std::memory_order_acquire) != State::kUp; }
  // True if bytes wait to be sent again: send(), maybe of no bytes, sends them.
  bool is_replaying() const { return replaying_.load(std::memory_order_relaxed); }
  bool is_given_up() const { return state_.load(std::memory_order_acquire) == State::kGivenUp; }

  // Ends this connection as if it had broken with `error`, 0 for its end; returns false if that is
  // final.
  bool break_off(int error);

  // For the mesh's thread.
  // Ends the connection, so that received() is final.
  void prepare();
  std::uint64_t received() const;  // bytes
  std::string cause() const;       // why it broke: "Connection reset by peer"
  // Continues over `socket` with the bytes after the first `peer_received`. Returns the number of
  // bytes that are sent again; gives up and returns nullopt if more are needed than were kept.
  std::optional<std::uint64_t> resume(Socket socket, const LinkKeys& keys,
                                      std::uint64_t peer_received);
  void replay();  // sends what the connection takes
  void give_up(const std::string& why);

 private:
  enum class State { kUp, kDown, kGivenUp };
  bool is_ready();
  bool replay_rest();
  void note_sent(std::span<const iovec> parts, std::size_t bytes);
  void end_connection(int error);
  // Gives up: the peer needs the bytes after `from`, which are not all kept.
  void fail_to_continue(std::uint64_t from);

  mutable std::mutex mutex_;  // guards all below, if replay_ is set
  const Socket socket_;
  std::optional<RecordStream> stream_;
  std::optional<ReplayBuffer> replay_;
  const bool is_memory_stable_;
  const std::function<void()> on_break_;
  std::atomic<State> state_{State::kUp};
  std::atomic<bool> replaying_{false};
  bool final_ = false;  // after end_resuming()
  std::uint64_t received_ = 0, replayed_ = 0;
  // Bytes that the peer has although send() has not reported them: of a batch of records that was
  // cut.
  std::uint64_t ahead_ = 0;
  int error_ = 0;
  std::string failure_;  // the reason of kGivenUp
  LinkCounters ended_;   // sums over the connections before the newest one
};

}  // namespace backends
