// The step loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/train/loop_context.h"
#include "engine/train/milestones.h"
#include "engine/train/step_agreement.h"
#include "engine/train/step_recovery.h"
#include "engine/train/step_reports.h"
#include "engine/train/trainer_parts.h"

namespace engine {

class Trainer {
 public:
  // `stop_signal` becomes a signal's number when the user asks to stop in order; all ranks then
  // stop after the same step.
  Trainer(const TrainerOptions& options, const TrainerParts& parts,
          const std::atomic<int>& stop_signal);

  // From state.progress to the last step. Replicas are together afterwards; the last state is
  // evaluated where an evaluator is and the run was not stopped, and saved where a keeper is. A
  // backends::InterruptedError (asked to stop, this rank waits no longer for others that do not
  // come) ends the run in order too, on this rank alone: rank 0 saves the last step that was
  // completed, where its own state is all that a resumption needs. Throws DesyncError and
  // NonFiniteError on all ranks; with TrainerOptions::supports_rollback, before a
  // backends::PeerError goes on, TrainState::whole says whether the state is that of its progress.
  TrainResult run();
  // The steps of the last evaluation and the last snapshot.
  TrainerParts::Done done() const { return milestones_.done(); }

  // One step on the next batch of the loader, without reports. For benchmarks and tests; run()
  // calls it.
  void step();
  // Waits until the steps so far have ended: on a device step() only issues them.
  void wait_for_steps();
  // Of the last step().
  const StepPhases& phases() const { return phases_; }

 private:
  void begin();
  void train();  // to the end, in step with the others
  bool is_over() const;
  bool is_paused() const;
  void finish_step();  // what follows a step(), until the next one
  bool count_step();   // the step just done; true at the end of an epoch
  void exchange();     // agrees on stopping, reports when it is time
  void roll_back();
  void stop_alone(const std::string& why);
  TrainResult result(double seconds);
  void synchronize_replicas();
  const io::Batch& next_batch();
  StepCounts step_counts(const io::Batch& batch) const;
  // Whether every rank has as many samples in a step of the epoch.
  bool has_equal_shares(std::int64_t step) const;
  void tell(const DesyncReport* found);  // to observers; throws DesyncError where the run must end

  LoopContext context_;
  StepRecovery recovery_;
  StepAgreement agreement_;
  StepReports reports_;
  Milestones milestones_;

  std::vector<ops::ImageDraw> draws_;  // of the batch under way
  double lr_ = 0;
  StepPhases phases_;
  BatchResult before_epoch_;  // what the work had added up when the epoch began
  std::string interrupted_;   // why this rank stopped alone; "": it did not
};

}  // namespace engine
