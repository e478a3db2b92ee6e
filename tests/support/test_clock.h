// A clock that a test sets forward: what waits for a deadline reaches it when the test says so.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "io/base/time/clock.h"

namespace test_support {

// Stands still between calls of advance().
class TestClock final : public base::Clock {
 public:
  base::Deadline now() const noexcept override { return base::Deadline(Duration(now_)); }
  std::chrono::milliseconds longest_sleep() const noexcept override {
    return std::chrono::milliseconds(5);
  }
  void advance(std::chrono::milliseconds time) { now_ += Duration(time).count(); }

 private:
  using Duration = base::Deadline::duration;
  std::atomic<Duration::rep> now_ = std::chrono::steady_clock::now().time_since_epoch().count();
};

// As soon as `begins` holds, and until destruction, sets the clock forward by `step` every few
// milliseconds: a deadline that is taken later passes as well.
class PassingTime {
 public:
  PassingTime(TestClock& clock, std::chrono::milliseconds step, std::function<bool()> begins)
      : thread_([&clock, step, begins = std::move(begins)](const std::stop_token& stop) {
          for (bool begun = false; !stop.stop_requested();) {
            begun = begun || begins();
            if (begun) clock.advance(step);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace test_support
