// Helps ranks that wait for each other on one core. If each could have its own core, one of the two
// moves away: schedulers tend to keep them together, because each wakes the other and only one runs
// at a time. If there are more ranks than cores, they yield to each other.
#pragma once

#include <sched.h>

#include <chrono>

namespace backends {

// Returns the core that the calling thread runs on; -1 if unknown. Takes some nanoseconds.
int current_core() noexcept;

// Moves the calling thread from `core` to another core that it may use, without pinning it there.
// Costs about 10 us, so each thread does it at most once in 10 ms. Returns false if it did nothing
// or the thread may use no other core, e.g. with `--bind core`.
bool leave_core(int core) noexcept;

// Waits on a shared core by yielding it: the awaited rank may need this core. A yield lets that
// rank run for less than the cost of a sleep and a wake-up. But if other programs compete, a yield
// may last until they are done with their time slices. After such a long yield, the next waits do
// not yield; their number doubles with each long yield, and halves after many waits with short
// ones.
class YieldingWait {
 public:
  explicit YieldingWait(int ranks);  // `ranks`: the number of ranks on this host
  // Yields the core until done(), a limited number of times; returns the last result of done().
  template <typename Done>
  bool take(const Done& done);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMaxYields = 20;
  static constexpr int kMaxWaitsWithout = 1 << 14, kWaitsGoneWell = 256;

  void count_long_yield() noexcept;
  void count_good_wait() noexcept;

  const std::chrono::microseconds long_yield_;
  int waits_without_ = 0, pause_ = 1, gone_well_ = 0;
};

template <typename Done>
bool YieldingWait::take(const Done& done) {
  if (waits_without_ > 0) {
    --waits_without_;
    return done();
  }
  bool is_done = done();
  Clock::time_point before = Clock::now();
  for (int left = kMaxYields; left > 0 && !is_done; --left) {
    sched_yield();
    const Clock::time_point now = Clock::now();
    is_done = done();
    if (now - before > long_yield_) {
      count_long_yield();
      return is_done;
    }
    before = now;
  }
  count_good_wait();
  return is_done;
}

}  // namespace backends
