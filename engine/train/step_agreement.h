// Exchanges sums for reports between steps, and decides when to stop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/train/balance/share_balance.h"
#include "engine/train/checks/finite_guard.h"
#include "engine/train/loop_context.h"

namespace engine {

// The contribution of one rank to an exchange; += adds those of several. Sent as raw memory.
struct StepSums {
  double loss_sum = 0, rows = 0;       // sums of the last step
  double correct = 0, epoch_rows = 0;  // sums of the epoch so far
  FiniteGuard::Signs not_finite = {};
  std::int64_t overdue_reports = 0;  // ranks on which a report is overdue
  MeasuredWork work = {};            // since the last change of shares (ShareBalance)
  // The agreement itself sets these.
  double step_seconds = 0;                // mean since the last exchange
  double exchange_seconds = 0;            // the longest of all ranks
  std::int64_t stop_signal = 0;           // the largest
  std::int64_t pausing = 0, leaving = 0;  // numbers of ranks

  StepSums& operator+=(const StepSums& other);
};

// Decides, with the same result on all ranks, when the loop ends before its last step.
class StepAgreement {
 public:
  // `context` must outlive this. All memory is allocated here.
  explicit StepAgreement(LoopContext& context);

  void begin();  // called before the first step
  // Returns the seconds between two exchanges if one takes `exchange_seconds`: 20 times that, at
  // least 0.25 s and at most 2 s.
  static double interval(double exchange_seconds);
  // Returns true if an exchange is due: once in such an interval, after the same step on all ranks.
  // Otherwise than `at_once` it is due only after four times as many steps.
  bool is_due(bool at_once = true) const {
    return is_due_after(context_.progress().global_step, at_once);
  }
  bool is_due_after(std::int64_t step, bool at_once) const {
    return step >= next_ + (at_once ? 0 : 3 * (next_ - last_));
  }
  // Collective, called after a step, at `now` by the context's clock. Returns the sums over all
  // ranks, with the same bits on every rank for any backend.
  StepSums exchange(StepSums own, double now);

  // The work of each rank as of the last exchange.
  std::span<const MeasuredWork> work_of_ranks() const { return work_; }

  int stop_signal() const { return stop_; }  // the signal that all ranks stop for; 0: none
  void stop(int signal) { stop_ = signal; }  // for a signal agreed elsewhere, or on this rank alone
  bool pauses() const { return pause_ && stop_ == 0; }
  bool leaves() const { return leaves_; }  // this rank leaves when all pause

 private:
  void sum_over_ranks(StepSums& sums);
  void decide(const StepSums& sums, bool leave);

  LoopContext& context_;
  std::vector<StepSums> gathered_;    // the contributions of all ranks
  std::vector<MeasuredWork> work_;    // of them, before they are added up
  std::int64_t next_ = 0, last_ = 0;  // global steps of exchanges
  double last_seconds_ = 0;           // time of the last exchange
  double exchange_seconds_ = 0;       // of this rank
  bool has_exchanged_ = false;
  int stop_ = 0;
  bool pause_ = false, leaves_ = false;
};

}  // namespace engine
