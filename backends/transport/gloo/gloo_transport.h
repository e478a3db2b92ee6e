// A transport for Gloo on the authenticated connections of a SocketMesh: pairs and bound buffers.
// It has no port and no thread of its own. The calling thread moves the data of all pairs while it
// waits for one, so ranks that all send before they receive do not block each other.
#pragma once

#include <gloo/transport/context.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/transport/gloo/gloo_pair.h"
#include "backends/transport/socket/link_wait.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {

// One caller at a time, except abort(). Functions of Gloo's interface beyond bound buffers throw
// gloo::InvalidOperationException. A wait throws PeerError at the timeout, after abort(), and if a
// connection has ended or carried an invalid message; then only destruction, exchange_until() and
// stop() are allowed.
class GlooTransport final : public gloo::transport::Context {
 public:
  // Collective: connects like SocketMesh, and throws as it does.
  explicit GlooTransport(const BackendContext& context);
  GlooTransport(const GlooTransport&) = delete;
  GlooTransport& operator=(const GlooTransport&) = delete;

  // Returns the pair; it exists since construction.
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      std::size_t size) override;
  // REQUIRES: another rank.
  GlooPair& pair(int peer) { return *own_[static_cast<std::size_t>(peer)]; }

  // Waits for done(), which depends on `pair`.
  template <typename Done>
  void wait(GlooPair& pair, const Done& done) {
    if (done()) return;
    awaited_ = &pair;
    deadline_ = clock_.deadline_in(timeout_);
    wait_.run(*this, done);
  }

  // Called after a failure: sends and receives on the connections that still work until done() or
  // `until`.
  template <typename Done>
  void exchange_until(base::Deadline until, const Done& done) {
    while (!done() && !clock_.has_passed(until)) {
      if (!move_all()) (void)poll_pairs(std::min(clock_.poll_ms(until), kDonePollMs));
    }
  }
  // Returns true if a connection is being restored. After abort() none is.
  bool has_down_pair() const;
  // The memory of all that was sent may change.
  void copy_unacknowledged() noexcept;
  // Discards unsent data: the callers' memory is no longer read, after copy_unacknowledged().
  void drop_output() noexcept;

  const base::Clock& clock() const { return clock_; }

  // Any thread.
  void abort(std::string_view reason) noexcept { mesh_.abort(reason); }
  CallWait current_wait() const { return mesh_.current_wait(members_); }

 private:
  friend class LinkWait;
  bool pump();
  bool move_all();
  static constexpr int kDonePollMs = 20;  // between calls of done(), which may depend on time
  [[nodiscard]] bool poll_pairs(int milliseconds);
  void sleep();
  [[noreturn]] void fail(const GlooPair& broken) const;
  [[noreturn]] void on_abort();
  [[noreturn]] void on_timeout();
  bool is_late() const { return clock_.has_passed(deadline_); }
  std::string name_of(const GlooPair& pair) const;

  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  SocketMesh mesh_;
  std::vector<GlooPair*> own_;  // [peer]; null for this rank
  std::vector<pollfd> polled_;  // [peer] and the mesh's wake_fd(), with the results of poll()
  LinkWait wait_;
  GlooPair* awaited_ = nullptr;
  base::Deadline deadline_{};
};

}  // namespace backends
