// Waits for the connections of a mesh on the calling thread: it spins, yields to ranks that share
// its core, and sleeps.
#pragma once

#include <chrono>

#include "backends/core_sharing.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {

// One caller at a time. Allocates nothing.
class LinkWait {
 public:
  using Clock = std::chrono::steady_clock;
  // `mesh` outlives this.
  LinkWait(const SocketMesh& mesh, int rank, int ranks)
      : mesh_(mesh), rank_(rank), yielding_(ranks) {}

  // Calls host.pump(), which sends and receives and returns true if any byte moved, until done().
  // host.sleep() waits for the connections and for mesh.wake_fd(); host.on_abort() and
  // host.on_timeout() throw, the latter if host.is_late().
  template <typename Host, typename Done>
  void run(Host& host, const Done& done);

 private:
  bool may_spin(Clock::time_point idle_since, Clock::time_point now) const;
  void count_spin(bool paid) noexcept;
  bool leave_shared_core() const noexcept;

  const SocketMesh& mesh_;
  const int rank_;
  YieldingWait yielding_;
  int spins_lost_ = 0, waits_to_probe_ = 0;
};

template <typename Host, typename Done>
void LinkWait::run(Host& host, const Done& done) {
  Clock::time_point idle_since{};
  while (!done()) {
    const bool idle = idle_since != Clock::time_point{};
    if (host.pump()) {
      if (idle) count_spin(true);
      idle_since = {};
      continue;
    }
    if (mesh_.is_oversubscribed() && yielding_.take([&] { return host.pump(); })) continue;
    if (mesh_.aborted()) host.on_abort();
    const auto now = Clock::now();
    if (!idle) idle_since = now;
    if (may_spin(idle_since, now)) continue;
    if (host.is_late()) host.on_timeout();
    count_spin(false);
    host.sleep();
    idle_since = {};
  }
}

}  // namespace backends
