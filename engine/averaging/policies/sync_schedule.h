// When parameters are averaged: every K steps, where K may change during the run.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

// From global step `from` on (steps done), an averaging after every `every` steps.
struct SyncPhase {
  std::int64_t from = 0, every = 1;
};

// The clock counts global steps from the beginning of each phase. Averagings that happen for other
// reasons (an epoch's end, a snapshot) do not move it, so a resumed run averages in the same steps
// as one that was never stopped.
class SyncSchedule {
 public:
  SyncSchedule() : SyncSchedule(std::vector<SyncPhase>{{0, 1}}) {}
  // REQUIRES: at least one phase, `from` ascending from 0 or more, every >= 1 (Error).
  explicit SyncSchedule(std::vector<SyncPhase> phases);
  // Every step during the first `warmup` steps, then every `every`.
  static SyncSchedule constant(std::int64_t every, std::int64_t warmup);

  // Whether an averaging follows the step that makes `steps_done` steps.
  bool due(std::int64_t steps_done) const;
  // Averagings that are due after the steps first + 1 ... last.
  std::int64_t count(std::int64_t first, std::int64_t last) const;
  const std::vector<SyncPhase>& phases() const { return phases_; }

 private:
  std::vector<SyncPhase> phases_;
};

}  // namespace engine
