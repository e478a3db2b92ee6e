// Takes back a step that failed, and ends a run whose numbers are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/checks/finite_guard.h"
#include "engine/train/loop_context.h"

namespace engine {

class StepRecovery {
 public:
  // `context` outlives this. Allocates here, and in the first step.
  explicit StepRecovery(LoopContext& context);

  // Around the work of a step, whose update is the last thing that changes parameters. Returns what
  // the work asks before the update (StepRequest::may_update).
  const MayUpdate* begin_step(const GradientExchange* exchange);
  void end_update();
  // The state is that of the progress from now on.
  void settle() { step_ = Step::kSettled; }
  // Until settle() a failure leaves a state of which nothing is known.
  void unsettle() { step_ = Step::kUnknown; }

  bool is_settled() const { return step_ == Step::kSettled; }
  // The update was done, but the progress does not count the step yet.
  bool is_updated() const { return step_ == Step::kUpdated; }
  // After a failure: takes back what a step has changed before its update. The update is the last
  // thing that a step does, so before it only statistics have changed, and after it only replicas
  // that have not been averaged.
  void roll_back();

  FiniteGuard::Signs signs(const StepResults& results) { return finite_.signs(results); }
  // Both tell the observers what is not finite, once, and throw NonFiniteError where the run
  // must end for it, with the last good snapshot in its text. Collective.
  void check(const FiniteGuard::Signs& of_all_ranks) { tell(finite_.judge(of_all_ranks)); }
  bool check_parameters();  // returns whether they are finite

  std::optional<double> gradient_norm() const { return finite_.gradient_norm(); }
  std::optional<std::int64_t> skipped_steps() const { return finite_.skipped_steps(); }

 private:
  // Whether the state is that of the progress. In kBegun all but running statistics and counters
  // is; in kUpdated it is that of the step.
  enum class Step { kSettled, kBegun, kUpdated, kUnknown };

  void keep_state(const GradientExchange* exchange);
  void tell(const std::string& not_finite);
  [[noreturn]] void give_up(const NonFiniteReport& found);

  LoopContext& context_;
  FiniteGuard finite_;
  Step step_ = Step::kSettled;
  std::vector<FlatBuffer*> changed_in_step_;  // before its update
  std::vector<std::byte> before_step_;        // what they held
};

}  // namespace engine
