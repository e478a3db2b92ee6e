// Moves a thread by changing its affinity mask for a moment.
#include "backends/core_sharing.h"

#include <sched.h>

#include <chrono>

namespace backends {

int current_core() noexcept { return sched_getcpu(); }

bool leave_core(int core) noexcept {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last{};
  const auto now = Clock::now();
  if (core < 0 || core >= CPU_SETSIZE || now - last < std::chrono::milliseconds(10)) return false;
  last = now;
  cpu_set_t allowed, others;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(core, &allowed) ||
      CPU_COUNT(&allowed) < 2)
    return false;
  others = allowed;
  CPU_CLR(core, &others);
  if (sched_setaffinity(0, sizeof others, &others) != 0) return false;
  static_cast<void>(sched_setaffinity(0, sizeof allowed,
                                      &allowed));  // cannot fail: this was the mask before
  return true;
}

}  // namespace backends
