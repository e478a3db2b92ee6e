// The schedule of parameter averaging: every K steps; K may change during the run.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

// From global step `from` on (completed steps), an averaging follows every `every` steps.
struct SyncPhase {
  std::int64_t from = 0, every = 1;
};

// The schedule counts global steps from the start of each phase. Averagings for other reasons (an
// epoch's end, a checkpoint) do not shift it, so a resumed run averages in the same steps as an
// uninterrupted one.
class SyncSchedule {
 public:
  SyncSchedule() : SyncSchedule(std::vector<SyncPhase>{{0, 1}}) {}
  // REQUIRES: at least one phase, ascending `from` >= 0, every >= 1 (Error).
  explicit SyncSchedule(std::vector<SyncPhase> phases);
  // Averages in every step during the first `warmup` steps, then every `every` steps.
  static SyncSchedule constant(std::int64_t every, std::int64_t warmup);

  // Returns true if an averaging follows the step that completes `steps_done` steps.
  bool due(std::int64_t steps_done) const;
  // The number of averagings that are due after the steps first + 1 ... last.
  std::int64_t count(std::int64_t first, std::int64_t last) const;
  const std::vector<SyncPhase>& phases() const { return phases_; }

 private:
  std::vector<SyncPhase> phases_;
};

}  // namespace engine
