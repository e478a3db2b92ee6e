// For ranks that wait for each other on one core. Where each could have its own, one of the two
// moves away: schedulers tend to keep them together, because each wakes the other and only one runs
// at a time. Where there are more ranks than cores, they take turns.
#pragma once

#include <sched.h>

#include <chrono>

namespace backends {

// The core that the calling thread runs on; -1 if unknown. Takes some nanoseconds.
int current_core() noexcept;

// Moves the calling thread from `core` to another core that it may use, without pinning it there.
// It costs about 10 us, so at most once in 10 ms per thread; returns false if it did nothing or the
// thread may use no other core, as where `--bind core` has given it one.
bool leave_core(int core) noexcept;

// A wait where ranks share cores: the one that is waited for may need this one. Each turn lets it
// run, for less than a sleep and a wake-up cost. But where other programs compete, a turn may last
// until they are done with theirs. A turn as long as that is followed by waits without any, twice
// as many each time, until many waits have gone well.
class YieldingWait {
 public:
  explicit YieldingWait(int ranks);  // of this host
  // Gives up the core until done(), at most some times; returns what done() said last.
  template <typename Done>
  bool take(const Done& done);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTurns = 20;
  static constexpr int kMaxWaitsWithout = 1 << 14, kWaitsGoneWell = 256;

  void count_long_turn() noexcept;
  void count_good_wait() noexcept;

  const std::chrono::microseconds long_turn_;
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
  for (int left = kTurns; left > 0 && !is_done; --left) {
    sched_yield();
    const Clock::time_point now = Clock::now();
    is_done = done();
    if (now - before > long_turn_) {
      count_long_turn();
      return is_done;
    }
    before = now;
  }
  count_good_wait();
  return is_done;
}

}  // namespace backends
