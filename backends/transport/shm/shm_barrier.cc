// Implements the waits: spinning or yielding the core, then sleeping on a futex.
//
// The barrier has two halves: arrive() publishes what this rank wrote and returns the number of its
// arrival (the phase); wait_for_all(phase) returns once all ranks have arrived that often. Between
// the two a rank can do other work. Phases are never reset; they are compared by signed difference
// and may wrap around.
//
// A waiter first spins, because between ranks at the same point of a step the wait is shorter than
// falling asleep and waking up. It then sleeps on the other rank's phase word. The wake-up cannot
// be lost: the sleeper increments `sleepers` before it reads the phase, the arriving rank
// increments the phase before it reads `sleepers`, and both are sequentially consistent, so at
// least one of them sees the other. FUTEX_WAIT itself returns at once if the phase has changed.
#include "backends/transport/shm/shm_barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

#include "backends/backend_error.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/threads/spin_pause.h"

namespace backends {
namespace {

// About 20 us: longer than the usual skew between ranks in a block, but short enough not to block
// other threads from the core.
constexpr int kBarrierSpins = 1000;
constexpr int kGlances = 20;  // polls before sleepers are woken
// Limits the delay of an abort that comes between the last check and the sleep.
constexpr long kSleepNs = 50'000'000;

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec most{0, kSleepNs};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &most, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

}  // namespace

ShmBarrier::ShmBarrier(ShmFlag* flags, const BackendContext& context)
    : flags_(flags),
      rank_(context.rank),
      size_(context.world_size),
      names_(context.members),
      timeout_(context.timeout),
      clock_(context.clock),
      spins_(size_ <= base::count_of_cpus() ? kBarrierSpins : 0),
      yielding_(size_) {}

std::uint32_t ShmBarrier::arrive() noexcept {
  publish();
  wake_sleepers();
  return phase_;
}

std::uint32_t ShmBarrier::arrive_and_wait() {
  publish();
  // To check for sleepers, this rank has to wait until its writes have completed. That happens in
  // the background while it polls for the others' arrivals.
  for (int left = spins_ > 0 ? kGlances : 0; left > 0 && !all_have_arrived(phase_); --left)
    base::spin_pause();
  wake_sleepers();
  wait_for_all(phase_);
  return phase_;
}

void ShmBarrier::publish() noexcept {
  ShmFlag& own = flag(rank_, phase_ + 1);
  own.core.store(current_core(), std::memory_order_relaxed);
  own.phase.store(++phase_, std::memory_order_release);
}

// The fence orders the new phase before the check of `sleepers`: either we see the sleeper, or it
// sees the new phase before it sleeps.
void ShmBarrier::wake_sleepers() noexcept {
  ShmFlag& own = flag(rank_, phase_);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_relaxed) != 0) futex_wake(own.phase);
}

void ShmBarrier::wait_for_all(std::uint32_t phase) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !has_arrived(r, phase)) wait_for(r, phase);
  }
}

void ShmBarrier::wait_for(int rank, std::uint32_t phase) {
  if (spins_ > 0) {
    const int core = current_core();
    // On the same core spinning would only delay the other rank. One of the two moves to another
    // core if it can; the other sleeps.
    const bool apart = flag(rank, phase - 1).core.load(std::memory_order_relaxed) != core ||
                       (rank_ > rank && leave_core(core));
    for (int left = apart ? spins_ : 0; left > 0 && !has_arrived(rank, phase); --left)
      base::spin_pause();
  } else {
    yielding_.take([&] { return has_arrived(rank, phase); });
  }
  if (!has_arrived(rank, phase)) sleep_until_arrived(rank, phase);
}

void ShmBarrier::sleep_until_arrived(int rank, std::uint32_t phase) {
  ShmFlag& flag = this->flag(rank, phase);
  const auto deadline = clock_.deadline_in(timeout_);
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (!has_arrived(rank, phase) && !abort_.is_aborted() && !clock_.has_passed(deadline)) {
    const std::uint32_t seen = flag.phase.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - phase) < 0) futex_wait(flag.phase, seen);
  }
  flag.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  if (has_arrived(rank, phase)) return;
  if (abort_.is_aborted())
    throw PeerError("aborted: " + abort_.reason() + "; this rank was waiting for rank " +
                    missing_ranks(phase));
  throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms, waiting for rank " +
                  missing_ranks(phase));
}

std::string ShmBarrier::missing_ranks(std::uint32_t phase) const {
  std::string missing;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !has_arrived(r, phase))
      missing +=
          (missing.empty() ? "" : ", ") + std::to_string(names_[static_cast<std::size_t>(r)]);
  }
  return missing;
}

std::string ShmBarrier::waiting_text() const {
  const auto last = [&](std::uint32_t i) {
    return flag(rank_, i).phase.load(std::memory_order_acquire);
  };
  const std::uint32_t even = last(0), odd = last(1);
  const std::string missing = missing_ranks(static_cast<std::int32_t>(odd - even) > 0 ? odd : even);
  return missing.empty() ? "" : "seen no arrival of rank " + missing;
}

void ShmBarrier::abort(std::string_view reason) noexcept {
  abort_.abort(reason);
  for (int r = 0; r < size_; ++r) {
    futex_wake(flag(r, 0).phase);
    futex_wake(flag(r, 1).phase);
  }
}

}  // namespace backends
