// Decides when a run reports its steps, and computes the rates and phases in these reports.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/train/loop_context.h"

namespace engine {

class StepReports {
 public:
  // `context` must outlive this. All memory is allocated here.
  explicit StepReports(LoopContext& context);

  void begin();  // called before the first step
  bool are_wanted() const;
  bool is_due() const;  // depends only on the steps
  // Returns true if --log-every has a report after that step.
  bool follow_step(std::int64_t step) const;
  bool is_overdue(double now) const;  // by this rank's clock
  bool is_none_yet() const { return are_wanted() && reports_ == 0; }

  // The phases of the time since the last report.
  StepPhases& phases() { return phases_; }

  // Adds rates, phases and the averaging report since the last report, and passes the report to the
  // observers; the caller has set progress, losses and similar values. Collective, at `now` by the
  // context's clock.
  void report(StepReport report, double now);

 private:
  void add_ranks(StepReport& report);
  void add_slowest(StepReport& report);

  LoopContext& context_;
  double last_seconds_ = 0;  // time of the last report
  std::int64_t last_samples_ = 0, last_step_ = 0, reports_ = 0;
  StepPhases phases_;
  std::vector<StepPhases> rank_phases_;  // for one report
  std::vector<double> own_seconds_;      // own() of each, sorted
};

}  // namespace engine
