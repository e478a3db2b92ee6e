// Moves a thread by changing its affinity mask for a moment; counts yields.
#include "backends/core_sharing.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "io/base/machine/cpu_affinity.h"

namespace backends {
namespace {

// Longer than a rank usually runs before it waits itself; a yield lasts until all threads that
// share the core have run.
constexpr auto kTimePerRank = std::chrono::microseconds(200);

}  // namespace

int current_core() noexcept { return sched_getcpu(); }

bool leave_core(int core) noexcept {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last{};
  const auto now = Clock::now();
  if (core < 0 || core >= base::kMaxCpus || now - last < std::chrono::milliseconds(10))
    return false;
  last = now;
  const base::CpuSet allowed = base::cpus_of_this_thread();
  const auto index = static_cast<std::size_t>(core);
  if (!allowed[index] || allowed.count() < 2) return false;
  base::CpuSet others = allowed;
  others.reset(index);
  if (!base::set_cpus_of_this_thread(others)) return false;
  base::set_cpus_of_this_thread(allowed);  // cannot fail: this was the mask before
  return true;
}

YieldingWait::YieldingWait(int ranks)
    : long_yield_(kTimePerRank * ((ranks - 1) / base::count_of_cpus() + 1)) {}

void YieldingWait::count_long_yield() noexcept {
  pause_ = std::min(2 * pause_, kMaxWaitsWithout);
  waits_without_ = pause_;
  gone_well_ = 0;
}

void YieldingWait::count_good_wait() noexcept {
  if (++gone_well_ < kWaitsGoneWell) return;
  gone_well_ = 0;
  pause_ = std::max(pause_ / 2, 1);
}

}  // namespace backends
