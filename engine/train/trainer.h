// The step loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optim/learning_rate.h"
#include "engine/train/best_model.h"
#include "engine/train/checks/desync_check.h"
#include "engine/train/checks/finite_guard.h"
#include "engine/train/evaluator.h"
#include "engine/train/saving/checkpoint_keeper.h"
#include "engine/train/step/step_work.h"
#include "engine/train/train_observer.h"
#include "engine/train/weight_average.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

struct Every {  // of steps, or of epochs; 0 = never
  std::int64_t count = 0;
  bool epochs = false;
};

struct TrainerOptions {
  std::int64_t total_steps = 0;
  // Reports come after each multiple of this many steps of the whole run; 0: none. Absent: at least
  // 100 in a run, at least one every 10 s, and one after the last step.
  std::optional<std::int64_t> log_every{};
  Every evaluate, save;
  double clip_grad = 0;
  // > 0: gradients are those of the sum of all losses of a step instead of their mean; as many
  // losses as a sample has.
  double losses_of_a_sample = 0;
  bool has_labels = true;  // else numbers are predicted, and there is no accuracy
  OnNonFinite on_nonfinite = OnNonFinite::kAbort;
  // After a failure of another rank the state is that of the last step done, so that it can go on
  // with others.
  bool steps_back = false;
  // Ranks that want to leave (TrainerParts::leave) may do so where at least so many are left; else
  // all stop, as if by this signal.
  int least_ranks = 1, leave_signal = 0;
};

// What the loop works on; all of it outlives the trainer.
struct TrainerParts {
  StepWork& work;
  TrainState& state;
  const LearningRate& learning_rate;
  const io::Sampler& sampler;
  io::BatchLoader& loader;
  backends::Communicator& control;     // small exchanges between steps
  Evaluator* evaluator = nullptr;      // null: never evaluates
  CheckpointKeeper* keeper = nullptr;  // null: never saves
  DesyncCheck* desync = nullptr;       // null: replicas are not compared
  BestModel* best = nullptr;           // null: no evaluation is better than another
  WeightAverage* average = nullptr;    // of the weights over time, evaluated too; null: none
  std::vector<TrainObserver*> observers;
  std::vector<int> island;  // the ranks that count as one replica with this one, itself among them;
                            // empty: itself
  std::function<void(std::string_view)> activity;  // told what this rank is doing; may be empty
  std::string resumed_from = {};  // the snapshot that the state came from; "": from none
  // Of a state that came from another rank's memory: what was done of it already.
  struct Done {
    std::int64_t evaluated = -1, saved = -1;  // steps
  };
  std::optional<Done> done = {};
  // Asked a few times a second; true on any rank: run() returns on all of them after the same step,
  // with TrainResult::paused. May be empty.
  std::function<bool()> pause = {};
  // The same, but run() returns with TrainResult::leaves as well on the ranks that have said so.
  std::function<bool()> leave = {};
};

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
  // NonFiniteError on all ranks; with TrainerOptions::steps_back, before a backends::PeerError goes
  // on, TrainState::whole says whether the state is that of its progress.
  TrainResult run();
  // The steps of the last evaluation and the last snapshot.
  TrainerParts::Done done() const { return {evaluated_step_, saved_step_}; }

  // One step on the next batch of the loader, without reports. For benchmarks and tests; run()
  // calls it.
  void step();
  // Waits until the steps so far have ended: on a device step() only issues them.
  void settle();
  // Of the last step().
  const StepPhases& phases() const { return phases_; }

 private:
  void train();  // to the end, in step with the others
  void bring_together();
  const io::Batch& next_batch();
  bool may_save_alone() const;
  void save_alone();
  void keep_state(const GradientExchange* exchange);
  void restore_kept();
  void step_back();
  void catch_up();
  StepCounts step_counts(const io::Batch& batch) const;
  bool equal_shares(
      std::int64_t step) const;  // whether every rank has as many samples in a step of the epoch
  bool advance();                // counts the step just done; true at the end of an epoch
  void sum_over_ranks(std::span<double> values, double& signal);
  bool has_reports() const { return options_.log_every != std::optional<std::int64_t>(0); }
  bool is_report_step() const;  // by its number alone
  void exchange();              // agrees on stopping, reports when it is time
  void report(double loss, std::optional<double> accuracy, double seconds);
  void tell(const DesyncReport* found);  // to observers; throws DesyncError where the run must end
  // What is not finite (""; all is), to observers; throws NonFiniteError where the run must end.
  void tell(const std::string& not_finite);
  [[noreturn]] void give_up(const NonFiniteReport& found);
  std::string good_snapshot(const NonFiniteReport& found) const;
  bool due(const Every& every, bool epoch_end) const;
  bool average_weights();  // at the end of an epoch; true: now there is something to evaluate
  void evaluate();
  void evaluate_average();
  // Null: given up for a stop.
  std::optional<EvalReport> evaluate_weights();  // those that are in place
  void save();
  void report_saved();
  bool has_average() const { return p_.average != nullptr && p_.average->ready(); }
  bool is_paused() const;
  bool out_of_patience() const { return p_.best != nullptr && p_.best->out_of_patience(); }

  const TrainerOptions options_;
  TrainerParts p_;
  const std::atomic<int>& stop_signal_;

  FiniteGuard finite_;
  std::vector<ops::ImageDraw> draws_;  // of the batch under way
  double lr_ = 0;
  std::int64_t saved_step_ = -1, evaluated_step_ = -1;
  bool best_unsaved_ = false;  // the last evaluation was the best
  struct Snapshot {
    std::string path;  // "": none
    std::int64_t step = -1;
  };
  Snapshot newest_, second_newest_;  // on rank 0, and the one that the run was resumed from
  std::int64_t next_exchange_ = 0;   // global step at which ranks talk next
  int stop_ = 0;                     // agreed
  bool pause_ = false;               // likewise
  bool leaves_ = false;              // this rank does, when all pause
  bool has_exchanged_ = false;
  std::string interrupted_;  // why this rank stopped alone; "": it did not
  // Whether the state is that of `progress`; in a step all but running statistics and counters is,
  // and after its update it is that of the step.
  enum class Settled { kYes, kInStep, kUpdated, kNo } settled_ = Settled::kYes;
  std::vector<FlatBuffer*> changed_in_step_;  // before its update
  std::vector<std::byte> before_step_;        // what they held
  double reported_at_ = 0;                    // seconds
  std::int64_t reported_samples_ = 0, reported_step_ = 0, exchanged_step_ = 0, reports_ = 0;
  double exchanged_at_ = 0;
  BatchResult before_epoch_;      // what the work had added up when the epoch began
  std::vector<double> gathered_;  // what all ranks said in an exchange
  StepPhases phases_, phases_since_report_;
  std::vector<StepPhases> rank_phases_;  // a report's
  std::vector<double> own_seconds_;      // the same, sorted
};

}  // namespace engine
