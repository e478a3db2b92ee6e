// The clock of deadlines, as a parameter: a test passes one that it sets itself.
#pragma once

#include <algorithm>
#include <chrono>

#include "io/base/time/deadline.h"

namespace base {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Deadline now() const noexcept = 0;
  // Returns the longest time for which a wait may sleep before it reads the clock again.
  virtual std::chrono::milliseconds longest_sleep() const noexcept = 0;

  Deadline deadline_in(std::chrono::steady_clock::duration timeout) const {
    return now() + timeout;
  }
  bool has_passed(Deadline deadline) const { return now() >= deadline; }
  // Returns the time for which a wait that ends at the deadline may sleep now, rounded up: 0 if the
  // deadline has passed.
  std::chrono::milliseconds sleep_time(Deadline deadline) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
    return std::clamp(left, std::chrono::milliseconds(0), longest_sleep());
  }
  // The same for poll().
  int poll_ms(Deadline deadline) const { return static_cast<int>(sleep_time(deadline).count()); }
};

class SteadyClock final : public Clock {
 public:
  Deadline now() const noexcept override { return std::chrono::steady_clock::now(); }
  std::chrono::milliseconds longest_sleep() const noexcept override {
    return std::chrono::hours(1);
  }
};
inline const SteadyClock kSteadyClock{};

}  // namespace base
