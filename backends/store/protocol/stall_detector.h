// Notices that ranks wait in collectives and nothing moves, which heartbeats do not show: they
// prove that a process lives, not that it gets on.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/group.h"

namespace backends {

// Milliseconds as "12.3 s".
std::string stalled_time_text(std::int64_t ms);
// {0, 2, 3} as "rank 0, 2, 3"; at most 8 of them.
std::string short_ranks_text(const std::vector<int>& ranks);

// Rank 0's view of all ranks; a state machine without a clock or a thread of its own.
class StallDetector {
 public:
  // 0: never stalled.
  explicit StallDetector(std::chrono::milliseconds after) : after_ms_(after.count()) {}

  struct Member {
    int rank;
    const RankProgress& progress;
    const std::string& activity;
  };
  struct Stall {
    std::string text;         // who waits in what, who does not, and which links move nothing
    int culprit;              // the rank for which the others wait, as far as it can be told
    std::set<int> concerned;  // it, the rank that has waited longest, those at silent links
  };
  // A stall, when one begins, and again each time that its length has doubled.
  [[nodiscard]] std::optional<Stall> check(const std::vector<Member>& members);

 private:
  const std::int64_t after_ms_;
  std::int64_t next_ms_ = 0;  // length at which it is reported again; 0: there is none
};

}  // namespace backends
