// Points in time by which something must have happened.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace base {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline deadline_in(std::chrono::steady_clock::duration timeout) {
  return std::chrono::steady_clock::now() + timeout;
}
inline bool has_passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

// Seconds of a monotonic clock, for measuring durations.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the time until the deadline, rounded up, from 0 to `most`, as poll() needs it.
inline int milliseconds_left(Deadline deadline, int most = 3'600'000) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, most));
}

}  // namespace base
