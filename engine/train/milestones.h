// The actions of a run between steps: evaluates, saves, tracks the best state, averages weights.
#pragma once

#include <exception>
#include <optional>

#include "engine/train/lone_saver.h"
#include "engine/train/loop_context.h"
#include "engine/train/step_agreement.h"
#include "engine/train/step_recovery.h"

namespace engine {

class Milestones {
 public:
  // All arguments must outlive this. `lone_saver` saves if another rank fails meanwhile.
  Milestones(LoopContext& context, StepRecovery& recovery, StepAgreement& agreement,
             LoneSaver& lone_saver)
      : context_(context), recovery_(recovery), agreement_(agreement), lone_saver_(lone_saver) {}

  void begin();  // before the first step
  // Completes pending actions of the last step: those of ranks that continue in a new group, or an
  // evaluation of a run that was stopped. Collective, as are the three functions below.
  void catch_up();
  // Called at the end of an epoch, before the exchange. Returns true if the run now has an average
  // to evaluate.
  bool average_weights();
  // Returns true if after_step() with these arguments evaluates.
  bool evaluates_after_step(bool epoch_end, bool must_evaluate) const;
  // Evaluates and saves if due; evaluates in any case if `must_evaluate` is set.
  void after_step(bool epoch_end, bool must_evaluate);
  // Called when the other ranks are gone: marks the evaluation of the last step as pending if it is
  // due, for a resumed run. Not collective.
  void note_due_evaluation();
  // Returns true if all ranks wait for each other after the next step, at the end of an epoch or of
  // the run or for what is due then.
  bool follow_next_step() const;
  // Called after the last step: evaluates it unless the run was stopped, and saves it.
  void finish();
  // Called if the next batch cannot be read, or contradicts the model: a rank that is alone saves
  // the last completed step as usual, otherwise the LoneSaver does. Does not throw: the error is
  // what ends the run.
  void save_after_data_error() noexcept;

  bool should_stop_early() const;

 private:
  static bool is_due(const Every& every, const TrainProgress& at, bool epoch_end);
  bool is_due(const Every& every, bool epoch_end) const {
    return is_due(every, context_.progress(), epoch_end);
  }
  bool has_average() const;
  // The parts of catch_up(). They return true if something was pending and is complete now.
  bool make_up_average();
  bool make_up_evaluation();
  void add_epoch_to_average();
  // Saves the step, unless `is_saved`, and completes the average: a failure loses no step.
  void complete_average(bool is_saved);
  void evaluate();
  void evaluate_average();
  // Evaluates the current weights. Null: stopped, or an error that end_evaluation() throws.
  std::optional<EvalReport> evaluate_weights();
  void end_evaluation();
  void save();

  LoopContext& context_;
  StepRecovery& recovery_;
  StepAgreement& agreement_;
  LoneSaver& lone_saver_;
  bool best_unsaved_ = false;            // the last evaluation was the best
  std::exception_ptr evaluation_error_;  // set while an evaluation ends by it
};

}  // namespace engine
