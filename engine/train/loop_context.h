// The context that the parts of a Trainer share.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/train/saving/saved_checkpoints.h"
#include "engine/train/train_observer.h"
#include "engine/train/trainer_parts.h"
#include "io/base/time/deadline.h"

namespace engine {

// Forwards every event to several observers in order.
class ObserverList final : public TrainObserver {
 public:
  explicit ObserverList(std::vector<TrainObserver*> observers) : observers_(std::move(observers)) {}
  void on_step(const TrainProgress& progress) override {
    for (TrainObserver* o : observers_) o->on_step(progress);
  }
  void on_loss(const TrainProgress& progress, double loss) override {
    for (TrainObserver* o : observers_) o->on_loss(progress, loss);
  }
  void on_report(const StepReport& report) override {
    for (TrainObserver* o : observers_) o->on_report(report);
  }
  void on_eval(const EvalReport& report) override {
    for (TrainObserver* o : observers_) o->on_eval(report);
  }
  void on_desync(const TrainProgress& progress, const DesyncReport& report) override {
    for (TrainObserver* o : observers_) o->on_desync(progress, report);
  }
  void on_nonfinite(const TrainProgress& progress, const NonFiniteReport& report) override {
    for (TrainObserver* o : observers_) o->on_nonfinite(progress, report);
  }
  void on_shares(const TrainProgress& progress, const ShareReport& report) override {
    for (TrainObserver* o : observers_) o->on_shares(progress, report);
  }
  void on_save(const TrainProgress& progress, const std::string& path) override {
    for (TrainObserver* o : observers_) o->on_save(progress, path);
  }
  void on_end(const TrainResult& result) override {
    for (TrainObserver* o : observers_) o->on_end(result);
  }

 private:
  const std::vector<TrainObserver*> observers_;
};

// Measures the time of steps without evaluations and saves, so that samples/s is accurate.
class TrainClock {
 public:
  double seconds() const { return base::steady_seconds() - excluded_; }

  // The clock is stopped during the lifetime of this object. Exclusions do not nest.
  class [[nodiscard]] Exclusion {
   public:
    explicit Exclusion(TrainClock& clock) : clock_(clock), start_(base::steady_seconds()) {}
    ~Exclusion() { clock_.excluded_ += base::steady_seconds() - start_; }
    Exclusion(const Exclusion&) = delete;
    Exclusion& operator=(const Exclusion&) = delete;

   private:
    TrainClock& clock_;
    const double start_;
  };

 private:
  double excluded_ = 0;
};

struct LoopContext {
  LoopContext(const TrainerOptions& trainer_options, const TrainerParts& trainer_parts,
              const std::atomic<int>& user_stop_signal)
      : options(trainer_options),
        parts(trainer_parts),
        stop_signal(user_stop_signal),
        observers(trainer_parts.observers),
        checkpoints(trainer_parts.checkpoints, trainer_parts.resumed_from,
                    trainer_parts.state.progress.global_step) {}
  LoopContext(const LoopContext&) = delete;
  LoopContext& operator=(const LoopContext&) = delete;

  const TrainProgress& progress() const { return parts.state.progress; }
  bool is_last_step() const { return progress().global_step == options.total_steps; }
  // Rank 0 of several has the whole state, so that it can save a copy of it without the others.
  // Rank 1 does so if rank 0 is lost.
  bool may_keep_state() const {
    return parts.control.rank() <= 1 && parts.control.world_size() > 1 &&
           parts.checkpoints != nullptr && parts.state.shares == nullptr;
  }
  // The same for the state itself, after a failure: a device may be in a sum that has failed.
  bool can_save_alone() const { return may_keep_state() && parts.state.control == nullptr; }
  // The same for a run of one rank, after a sample that contradicts the model.
  bool is_alone_on_host() const {
    return parts.control.world_size() == 1 && parts.checkpoints != nullptr &&
           parts.state.control == nullptr;
  }
  // Returns true if ranks are at unequal points of a step until all of them average, because they
  // take different numbers of local steps or average in pairs.
  bool ranks_run_apart() const {
    return parts.local_steps != nullptr || parts.state.policy.coupling().stays_apart;
  }
  void set_activity(std::string_view text) const {
    if (parts.activity) parts.activity(text);
  }
  // Reports a checkpoint that has been written since the last call to the observers.
  void report_saved() {
    if (const auto saved = checkpoints.take()) observers.on_save(saved->progress, saved->path);
  }

  const TrainerOptions options;
  const TrainerParts parts;
  const std::atomic<int>& stop_signal;  // the user's signal on this rank; 0: none
  ObserverList observers;
  TrainClock clock;
  SavedCheckpoints checkpoints;
  TrainerParts::Done done;  // written by Milestones alone
};

}  // namespace engine
