// The actions of a run between steps: evaluates, saves, tracks the best state, averages weights.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "engine/train/loop_context.h"
#include "engine/train/step_agreement.h"
#include "engine/train/step_recovery.h"

namespace engine {

class Milestones {
 public:
  // All arguments must outlive this.
  Milestones(LoopContext& context, StepRecovery& recovery, StepAgreement& agreement)
      : context_(context), recovery_(recovery), agreement_(agreement) {}

  void begin();  // before the first step
  // Completes pending actions of the last step: those of ranks that continue in a new group, or an
  // evaluation of a run that was stopped. Collective, as are the three functions below.
  void catch_up();
  // Called at the end of an epoch, before the exchange. Returns true if the run now has an average
  // to evaluate.
  bool average_weights();
  // Evaluates and saves if due; evaluates in any case if `evaluate` is set.
  void after_step(bool epoch_end, bool evaluate);
  // Returns true if all ranks wait for each other after the next step, at the end of an epoch or of
  // the run or for what is due then.
  bool follow_next_step() const;
  // Called after the last step: evaluates it unless the run was stopped, and saves it.
  void finish();
  // Called between steps, when replicas may be equal: copies the state if this rank could not save
  // a later one alone. Copies take a small part of the time: states that follow the last copy soon
  // are left out. The arguments are those of after_step(), which follows.
  void keep_state(bool epoch_end, bool evaluate);
  // Called on this rank if it cannot wait for the others: saves the last completed step, or the
  // last state of keep_state(), on rank 0. Returns what the other ranks had that is not in it, ""
  // if nothing is missing. Throws io::Error.
  std::string save_alone();
  // The same after the loss of another rank, on rank 1 also if rank 0 is lost: without it, the
  // steps since the last checkpoint would be lost. Does not throw: the loss is what ends the run.
  void save_after_loss() noexcept;
  // Called if the next batch cannot be read, or contradicts the model: a rank that is alone, or
  // rank 0, saves the last completed step. Does not throw: the error is what ends the run.
  void save_after_data_error() noexcept;

  TrainerParts::Done done() const { return done_; }
  bool should_stop_early() const;

 private:
  static bool is_due(const Every& every, const TrainProgress& at, bool epoch_end);
  bool is_due(const Every& every, bool epoch_end) const {
    return is_due(every, context_.progress(), epoch_end);
  }
  bool has_average() const;
  void evaluate();
  void evaluate_average();
  // Evaluates the current weights. Null: stopped, or an error that end_evaluation() throws.
  std::optional<EvalReport> evaluate_weights();
  void end_evaluation();
  void save();
  // Returns the progress of the state that was written; none if there is no newer one to save.
  std::optional<TrainProgress> save_own_state();
  void report_saved_step(const std::string& cause, const TrainProgress& saved) const;
  // Returns what the other ranks had that a state of this rank lacks; "": nothing.
  std::string lost_with_others() const;

  LoopContext& context_;
  StepRecovery& recovery_;
  StepAgreement& agreement_;
  TrainerParts::Done done_;
  bool best_unsaved_ = false;            // the last evaluation was the best
  std::exception_ptr evaluation_error_;  // set while an evaluation ends by it
  double next_copy_ = 0;                 // steady seconds before which keep_state() copies nothing
};

}  // namespace engine
