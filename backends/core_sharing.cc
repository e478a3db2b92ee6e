// Moves a thread by changing its affinity mask for a moment.
#include "backends/core_sharing.h"

#include <sched.h>

#include <chrono>

#include "io/base/cpu_affinity.h"

namespace backends {

int current_core() noexcept { return sched_getcpu(); }

bool leave_core(int core) noexcept {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last{};
  const auto now = Clock::now();
  if (core < 0 || core >= base::kMostCpus || now - last < std::chrono::milliseconds(10))
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

}  // namespace backends
