// How long a worker that has failed stays away.
#pragma once

#include <algorithm>
#include <chrono>

namespace tools {

// 0.25 s before it is started again, twice as long after each failure, up to 32 s. A worker that
// had worked for more than a minute begins anew.
class RespawnPause {
 public:
  std::chrono::milliseconds next(std::chrono::steady_clock::duration lived) {
    if (lived > std::chrono::seconds(60)) pause_ = kFirst;
    const std::chrono::milliseconds now = pause_;
    pause_ = std::min(2 * pause_, kLongest);
    return now;
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{250}, kLongest{32'000};
  std::chrono::milliseconds pause_ = kFirst;
};

}  // namespace tools
