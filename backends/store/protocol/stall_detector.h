// Detects that ranks wait in collectives without progress. Heartbeats do not show this: they prove
// only that a process is alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/group.h"

namespace backends {

// Returns milliseconds as e.g. "12.3 s".
std::string stalled_time_text(std::int64_t ms);
// Returns {0, 2, 3} as "rank 0, 2, 3"; lists at most 8 ranks.
std::string short_ranks_text(const std::vector<int>& ranks);

// Rank 0's view of all ranks: a state machine without a clock or a thread of its own.
class StallDetector {
 public:
  // `after` = 0 disables the detection.
  explicit StallDetector(std::chrono::milliseconds after) : after_ms_(after.count()) {}

  struct Member {
    int rank;
    const RankProgress& progress;
    const std::string& activity;
  };
  struct Stall {
    // The ranks that wait in each call, those that do not wait, and the links that are idle.
    std::string text;
    int culprit;              // the rank that the others wait for, if it can be determined
    std::set<int> concerned;  // the culprit, the longest waiting rank, those at silent links
  };
  // Returns a stall when one begins, and again each time that its length has doubled.
  [[nodiscard]] std::optional<Stall> check(const std::vector<Member>& members);

 private:
  const std::int64_t after_ms_;
  std::int64_t next_ms_ = 0;  // length of the next report; 0: no stall
};

}  // namespace backends
