// Rolls back a failed step, and ends a run whose values are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/checks/buffer_backup.h"
#include "engine/train/checks/finite_guard.h"
#include "engine/train/loop_context.h"

namespace engine {

class StepRecovery {
 public:
  // `context` must outlive this. Allocates here, and in the first step.
  explicit StepRecovery(LoopContext& context);

  // Called before and after the work of a step, whose update is the last change of parameters.
  // Returns the condition for the update (StepRequest::may_update).
  const MayUpdate* begin_step(GradientExchange* exchange);
  void end_update();
  // From now on the state matches the progress.
  void mark_complete() { state_ = StepState::kComplete; }
  // From now on until mark_complete(), a failure leaves an unknown state.
  void mark_unknown() { state_ = StepState::kUnknown; }

  bool is_complete() const { return state_ == StepState::kComplete; }
  // The update was done, but the progress does not count the step yet.
  bool is_updated() const { return state_ == StepState::kUpdated; }
  // After a failure, rolls back the changes of a step before its update. The update is the last
  // action of a step, so before it only statistics have changed, and after it only replicas that
  // have not been averaged.
  void roll_back();

  FiniteGuard::Signs signs(const StepResults& results) { return finite_.signs(results); }
  // All report non-finite values to the observers once, and throw NonFiniteError if the run must
  // end, with the last good checkpoint in its text. Collective.
  void check(const FiniteGuard::Signs& of_all_ranks) {
    handle_non_finite(finite_.note(finite_.find_non_finite(of_all_ranks)));
  }
  bool check_parameters();  // returns whether they are finite
  // The same for an evaluation, which all ranks have. With kSkip the run continues.
  void check_evaluation(const EvalReport& report);

  std::optional<double> gradient_norm() const { return finite_.gradient_norm(); }
  std::optional<std::int64_t> skipped_steps() const { return finite_.skipped_steps(); }

 private:
  // The relation of the state to the progress. In kStarted everything except running statistics and
  // counters matches the progress; in kUpdated the state is that of the step.
  enum class StepState { kComplete, kStarted, kUpdated, kUnknown };

  void keep_state();
  void handle_non_finite(const std::optional<NonFiniteReport>& found);
  [[noreturn]] void give_up(const NonFiniteReport& found);

  LoopContext& context_;
  FiniteGuard finite_;
  StepState state_ = StepState::kComplete;
  GradientExchange* exchange_ = nullptr;  // of the step
  BufferBackup before_step_;              // of the buffers that a step changes before its update
};

}  // namespace engine
