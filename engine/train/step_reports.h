// When a run reports its steps, and the rates and phases in these reports.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/train/loop_context.h"

namespace engine {

class StepReports {
 public:
  // `context` outlives this. Allocates here only.
  explicit StepReports(LoopContext& context);

  void begin();  // before the first step
  bool are_wanted() const;
  bool is_due() const;                // by the number of the step alone
  bool is_overdue(double now) const;  // by this rank's clock
  bool is_none_yet() const { return are_wanted() && reports_ == 0; }

  // Where the time since the last report went.
  StepPhases& phases() { return phases_; }

  // Adds rates, phases and what the averaging has done since the last report, and tells the
  // observers; progress, losses and the like are there already. Collective, at `now` by the
  // context's clock.
  void report(StepReport report, double now);

 private:
  void add_ranks(StepReport& report);
  void add_slowest(StepReport& report);

  LoopContext& context_;
  double last_seconds_ = 0;  // of the last report
  std::int64_t last_samples_ = 0, last_step_ = 0, reports_ = 0;
  StepPhases phases_;
  std::vector<StepPhases> rank_phases_;  // a report's
  std::vector<double> own_seconds_;      // the same, sorted
};

}  // namespace engine
