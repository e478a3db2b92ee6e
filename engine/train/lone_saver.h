// Saves the state of this rank alone if the other ranks cannot take part any more.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "engine/train/copy_budget.h"
#include "engine/train/loop_context.h"
#include "engine/train/step_recovery.h"

namespace engine {

// Saves the last completed step if this rank's own state suffices to resume the run of all ranks,
// or the last state of keep_state(). No function is collective.
class LoneSaver {
 public:
  // All arguments must outlive this.
  LoneSaver(LoopContext& context, const StepRecovery& recovery)
      : context_(context), recovery_(recovery) {}

  // Called between steps, when replicas may be equal: copies the state if this rank could not save
  // a later one alone. Copies take a small part of the time: states that follow the last copy soon
  // are left out. `evaluation_follows`: the copied state is evaluated next, so it states that its
  // evaluation is pending.
  void keep_state(bool epoch_end, bool evaluation_follows);
  // Called on this rank if it cannot wait for the others: rank 0 saves. Returns what the other
  // ranks had that is not in it, "" if nothing is missing. Throws io::Error.
  std::string save_alone();
  // Called after the loss of another rank, on rank 1 also if rank 0 is lost: without it, the steps
  // since the last checkpoint would be lost. Does not throw: the loss is what ends the run.
  void save_after_loss() noexcept;
  // Called if the next batch cannot be read, or contradicts the model: rank 0 saves. Does not
  // throw: the error is what ends the run.
  void save_after_data_error() noexcept;

  // Returns true if the last completed step is not in a checkpoint, and the state matches it.
  bool has_unsaved_step() const;
  // Print a notice: `saved` is the progress of the state that was written because of `cause`.
  void report_saved_step(const std::string& cause, const TrainProgress& saved) const;
  void report_failure(const std::exception& error) const;

 private:
  // Returns the progress of the state that was written; none if there is no newer one to save.
  std::optional<TrainProgress> save_own_state();
  // Returns what the other ranks had that a state of this rank lacks; "": nothing.
  std::string lost_with_others() const;

  LoopContext& context_;
  const StepRecovery& recovery_;
  CopyBudget budget_;  // of keep_state()
};

}  // namespace engine
