// Checks for non-finite values, so that a diverged run does not continue unnoticed: the loss
// whenever ranks exchange it, the gradient's norm if it is computed, and parameters before they are
// saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/graph/batch_view.h"
#include "engine/train/checks/buffer_backup.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/saving/train_state.h"
#include "engine/train/step/step_work.h"

namespace engine {

// Returns an index in state.entries; with `statistics`, running statistics are checked as well.
// Empty if all are finite. Constants are not checked: training never changes them, so that numbers
// that are not finite (the -inf of a mask) are the model's own.
std::optional<std::size_t> first_not_finite(const ModelState& state, bool statistics);

class FiniteGuard {
 public:
  // Both must outlive the guard. All ranks make the same calls in the same order. `norms`: steps
  // compute the gradient's norm anyway. With kSkip, a work on a device must skip steps itself
  // (DeviceWorkOptions::restores_skipped). All memory is allocated here.
  FiniteGuard(backends::Communicator& communicator, TrainState& state, OnNonFinite action,
              bool norms);
  FiniteGuard(const FiniteGuard&) = delete;
  FiniteGuard& operator=(const FiniteGuard&) = delete;

  // The condition of each step (StepRequest::may_update); null: none. Collective with kSkip.
  const MayUpdate* may_update() const { return may_update_ ? &may_update_ : nullptr; }
  // Called before and after a step's work: if the step was skipped, the model's changes by forward
  // are restored.
  void begin_step();
  void end_step();
  std::optional<std::int64_t> skipped_steps() const;  // skipped by kSkip; none with another action

  // The norm of the last step, if may_update() was called.
  std::optional<double> gradient_norm() const { return norm_; }

  // This rank's contribution to an exchange, which is summed: above 0 means not finite.
  struct Signs {
    double loss = 0, norm = 0;
  };
  Signs signs(const StepResults& results);
  // Returns what is not finite according to the sums, or "". A loss in a step that loss scaling has
  // skipped does not count, unless it skips many consecutive steps. Collective.
  std::string find_non_finite(const Signs& sums);
  // Returns the first parameter that is not finite on any rank after this step, or "". First called
  // before the first step. Collective.
  std::string bad_parameter();

  // Returns a report for the result of find_non_finite() or bad_parameter(), only the first time.
  std::optional<NonFiniteReport> note(const std::string& what);
  // Returns a report for an evaluation after this step whose loss is not finite, only if it is the
  // first report.
  std::optional<NonFiniteReport> note_evaluation();

 private:
  bool vote(double norm, double loss_sum);
  bool skipped_by_scaling() const;

  backends::Communicator& communicator_;
  TrainState& state_;
  const OnNonFinite action_;
  MayUpdate may_update_;
  bool bad_norm_ = false, reported_ = false, evaluation_reported_ = false;
  bool skipped_ = false;  // the current step
  std::optional<double> norm_;
  std::int64_t skipped_steps_ = 0;
  std::optional<std::int64_t> skipped_before_;  // on a device: before the first step
  std::optional<std::int64_t> last_good_, scanned_step_, first_step_;
  std::string scanned_;                 // what bad_parameter() gave then
  std::vector<std::int64_t> gathered_;  // one for each rank
  const bool restores_;                 // running statistics and counters, after a skipped step
  BufferBackup before_step_;            // their contents
};

}  // namespace engine
