// Determines the delay before a failed worker is restarted.
#pragma once

#include <algorithm>
#include <chrono>

namespace tools {

// The delay is 0.25 s, and doubles after each failure, up to `longest`. It is reset after a worker
// has run for more than a minute.
class RespawnPause {
 public:
  static constexpr std::chrono::milliseconds kUsualLongest{32'000};

  explicit RespawnPause(std::chrono::milliseconds longest = kUsualLongest) : longest_(longest) {}

  std::chrono::milliseconds next(std::chrono::steady_clock::duration lived) {
    if (lived > std::chrono::seconds(60)) pause_ = kFirst;
    const std::chrono::milliseconds now = std::min(pause_, longest_);
    pause_ = std::min(2 * pause_, longest_);
    return now;
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{250};
  std::chrono::milliseconds longest_, pause_ = kFirst;
};

}  // namespace tools
