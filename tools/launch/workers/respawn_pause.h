// How long a worker that has failed stays away.
#pragma once

#include <algorithm>
#include <chrono>

namespace tools {

// 0.25 s before it is started again, twice as long after each failure, up to `longest`. A worker
// that had worked for more than a minute begins anew.
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
