// Runs the training loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/train/lone_saver.h"
#include "engine/train/loop_context.h"
#include "engine/train/milestones.h"
#include "engine/train/step/loss_weights.h"
#include "engine/train/step_agreement.h"
#include "engine/train/step_recovery.h"
#include "engine/train/step_reports.h"
#include "engine/train/trainer_parts.h"

namespace engine {

class Trainer {
 public:
  // `stop_signal` becomes a signal's number when the user requests an orderly stop; all ranks then
  // stop after the same step.
  Trainer(const TrainerOptions& options, const TrainerParts& parts,
          const std::atomic<int>& stop_signal);

  // Runs from state.progress to the last step. Afterwards replicas are synchronized; the last state
  // is evaluated if there is an evaluator and the run was not stopped, and saved if there is a
  // checkpoint manager. A backends::InterruptedError (a stop was requested, and this rank no longer
  // waits for missing ranks) also ends the run in an orderly way, on this rank alone: rank 0 saves
  // the last completed step if its own state suffices for a resumption. Throws DesyncError and
  // NonFiniteError on all ranks; with TrainerOptions::supports_rollback, before a
  // backends::PeerError is rethrown, TrainState::whole states if the state matches its progress.
  TrainResult run();
  // The steps of the last evaluation and of the last checkpoint.
  TrainerParts::Done done() const { return context_.done; }

  // Makes one step on the loader's next batch, without reports. For benchmarks and tests; run()
  // calls it.
  void step();
  // Waits until all steps so far are complete: on a device step() only issues them.
  void wait_for_steps();
  // The phases of the last step().
  const StepPhases& phases() const { return phases_; }

 private:
  void begin();
  void train();  // runs to the end, in lockstep with the other ranks
  bool is_over() const;
  bool is_paused() const;
  void finish_step();  // actions between a step() and the next one
  bool count_step();   // counts the last step; true at the end of an epoch
  bool count_steps();  // counts also those that the policy has skipped
  void exchange();     // agrees on stopping, and reports if due
  void compute(const io::Batch& batch, const StepCounts& counts, GradientExchange* exchange);
  void work(const StepRequest& request);
  void count_local_steps(std::int64_t step);
  void balance_shares();
  io::BatchShares due_shares() const;  // for the next step
  void follow_policy();                // changes the shares if the policy's steps have changed
  void use_shares();
  void seek_loader();
  void roll_back();
  void stop_alone(const std::string& why);
  TrainResult result(double seconds);
  void synchronize_replicas();
  const io::Batch& next_batch();
  StepCounts step_counts(const io::Batch& batch) const;
  double loss_scale(const io::Batch& batch, const StepCounts& counts);
  // Returns the number of samples that each rank has in a step of the epoch.
  std::span<const std::int64_t> counts_of_ranks(std::int64_t step);
  void handle_desync(const DesyncReport* found);  // notifies observers; throws DesyncError if the
                                                  // run must end

  LoopContext context_;
  StepRecovery recovery_;
  StepAgreement agreement_;
  StepReports reports_;
  LoneSaver lone_saver_;
  Milestones milestones_;

  std::vector<ops::ImageDraw> draws_;      // for the current batch
  std::vector<std::int64_t> rank_counts_;  // of the current step
  LossWeights loss_weights_;
  double last_weight_ = 0;  // sum of the weights of this rank's samples of the last step
  double lr_ = 0;
  StepPhases phases_;
  bool idle_ = false;          // this rank did not take the last step
  std::int64_t left_out_ = 0;  // steps after the last one that the policy leaves out
  BatchResult before_epoch_;   // the work's sums at the start of the epoch
  std::string interrupted_;    // why this rank stopped alone; "": it did not
};

}  // namespace engine
