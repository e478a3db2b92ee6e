// Decides when a wait spins, and when it moves to another core.
#include "backends/transport/socket/link_wait.h"

#include <sys/socket.h>

namespace backends {
namespace {

// Spinning avoids a sleep and a wake-up, about 10 us, if the peer runs on another core. If the peer
// waits for this core, spinning only delays it: after kSpinsLost spins in a row that ended in
// sleep, only one wait in kProbeEvery spins, until one succeeds. (Yielding instead of spinning
// would give the core to a computing thread for milliseconds. Ranks yield only if they share
// cores.)
constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kSpinsLost = 4, kProbeEvery = 16;

}  // namespace

bool LinkWait::may_spin(Clock::time_point idle_since, Clock::time_point now) const {
  return !mesh_.is_oversubscribed() && now - idle_since < kSpinTime &&
         (spins_lost_ < kSpinsLost || waits_to_probe_ == 0);
}

void LinkWait::count_spin(bool paid) noexcept {
  if (paid) {
    spins_lost_ = waits_to_probe_ = 0;
  } else if (spins_lost_ < kSpinsLost) {
    ++spins_lost_;
    if (spins_lost_ == kSpinsLost && leave_shared_core()) spins_lost_ = 0;
  } else {
    waits_to_probe_ = waits_to_probe_ > 0 ? waits_to_probe_ - 1 : kProbeEvery - 1;
  }
}

// Moves to another core if the last packet of a lower rank came from this core; returns true if it
// moved.
bool LinkWait::leave_shared_core() const noexcept {
  const int core = current_core();
  for (int peer = 0; peer < rank_; ++peer) {
    for (int stream = 0; stream < mesh_.streams(); ++stream) {
      int theirs = -1;
      socklen_t bytes = sizeof theirs;
      if (getsockopt(mesh_.fd(peer, stream), SOL_SOCKET, SO_INCOMING_CPU, &theirs, &bytes) == 0 &&
          theirs == core)
        return mesh_.on_loopback() && leave_core(core);
    }
  }
  return false;
}

}  // namespace backends
