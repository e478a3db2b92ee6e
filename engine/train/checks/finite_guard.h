// Looks for numbers that are not finite, so that a run that has diverged does not go on unnoticed:
// the loss wherever ranks exchange it, the gradient's norm where it is computed, and parameters
// before they are saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/graph/batch_view.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/saving/train_state.h"
#include "engine/train/step/step_work.h"

namespace engine {

// In state.entries; with `statistics`, running statistics count, too. None: all are finite.
std::optional<std::size_t> first_not_finite(const ModelState& state, bool statistics);

class FiniteGuard {
 public:
  // Both outlive the guard. All ranks make the same calls in the same order. `norms`: steps compute
  // the gradient's norm anyway. kSkip is for steps on the CPU. Allocates here only.
  FiniteGuard(backends::Communicator& communicator, TrainState& state, OnNonFinite action,
              bool norms);
  FiniteGuard(const FiniteGuard&) = delete;
  FiniteGuard& operator=(const FiniteGuard&) = delete;

  // What each step asks (StepRequest::may_update); null: nothing. Collective with kSkip.
  const MayUpdate* may_update() const { return may_update_ ? &may_update_ : nullptr; }
  // Around a step's work: where it was skipped, what forward has changed of the model is as before.
  void begin_step();
  void end_step();
  std::optional<std::int64_t> skipped_steps() const;  // by kSkip; none with another action

  // Of the last step, where may_update() was asked.
  std::optional<double> gradient_norm() const { return norm_; }

  // What this rank tells the others in an exchange, to be summed: above 0 means not finite.
  struct Signs {
    double loss = 0, norm = 0;
  };
  Signs signs(const StepResults& results);
  // From the sums what is not finite, "" if nothing. A loss in a step that loss scaling has skipped
  // does not count, unless it skips one step after the other. Collective.
  std::string judge(const Signs& sums);
  // The first parameter that is not finite on any rank, as it stands after this step; "" if none.
  // First called before the first step. Collective.
  std::string bad_parameter();

  // What there is to tell of what judge() or bad_parameter() gave: the first time only.
  std::optional<NonFiniteReport> note(const std::string& what);

 private:
  bool vote(double norm, double loss_sum);
  bool skipped_by_scaling() const;

  backends::Communicator& communicator_;
  TrainState& state_;
  const OnNonFinite action_;
  MayUpdate may_update_;
  bool bad_norm_ = false, told_ = false;
  bool skipped_ = false;  // the step under way
  std::optional<double> norm_;
  std::int64_t skipped_steps_ = 0;
  std::optional<std::int64_t> last_good_, scanned_step_, first_step_;
  std::string scanned_;                     // what bad_parameter() gave then
  std::vector<std::int64_t> gathered_;      // one for each rank
  std::vector<std::byte> before_the_step_;  // running statistics and counters
};

}  // namespace engine
