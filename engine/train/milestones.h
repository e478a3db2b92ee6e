// What a run does between steps when it is due: evaluates, saves, names the best, averages weights.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/train/loop_context.h"
#include "engine/train/step_agreement.h"
#include "engine/train/step_recovery.h"

namespace engine {

class Milestones {
 public:
  // All three outlive this.
  Milestones(LoopContext& context, StepRecovery& recovery, StepAgreement& agreement)
      : context_(context), recovery_(recovery), agreement_(agreement) {}

  void begin();  // before the first step
  // What was due after the last step and was not finished: by ranks that went on with others, or,
  // of an evaluation, by a run that was stopped. Collective, as the three below.
  void catch_up();
  // At the end of an epoch, before the exchange. Returns whether the run has an average to evaluate
  // from now on.
  bool average_weights();
  // Evaluates and saves where it is due; with `evaluate` in any case.
  void after_step(bool epoch_end, bool evaluate);
  // After the last step, which is evaluated unless the run was stopped, and saved.
  void finish();
  // On this rank, when the others cannot be waited for: saves the last step that was completed,
  // where its own state is all that a resumption needs. Throws io::Error.
  void save_alone();

  TrainerParts::Done done() const { return done_; }
  bool should_stop_early() const;

 private:
  bool is_due(const Every& every, bool epoch_end) const;
  bool has_average() const;
  void evaluate();
  void evaluate_average();
  std::optional<EvalReport> evaluate_weights();  // those that are in place; null: stopped
  void save();

  LoopContext& context_;
  StepRecovery& recovery_;
  StepAgreement& agreement_;
  TrainerParts::Done done_;
  bool best_unsaved_ = false;  // the last evaluation was the best
};

}  // namespace engine
