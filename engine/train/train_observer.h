// What a training run tells the outside. Everything that prints, logs or plots is an observer; the loop itself is silent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace engine {

// Where a run stands. `step_in_epoch` steps of `epoch` (from 0) are done.
struct TrainProgress {
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0;
  std::int64_t samples_seen = 0;  // over all ranks
};

struct StepReport {
  TrainProgress progress;
  double loss = 0;            // mean over the global batch of this step
  double train_accuracy = 0;  // share of right predictions since the run (or its resumption) began, over all ranks
  double lr = 0;
  double samples_per_s = 0;                     // over all ranks, since the last report
  std::int64_t averagings = 0, bytes_sent = 0;  // as AveragingPolicy counts them
  std::optional<double> spread;                 // of the replicas, where it was measured since the last report
};

struct EvalReport {
  TrainProgress progress;
  std::string split;  // "test"
  double loss = 0;    // mean over all samples
  std::int64_t correct = 0, samples = 0;
  double accuracy() const { return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples); }
};

struct TrainResult {
  TrainProgress progress;
  double seconds = 0;
  int signal = 0;        // the run was stopped in order by this signal; 0: it ran to its end
  std::string coverage;  // AveragingPolicy::coverage()
  std::int64_t averagings = 0, bytes_sent = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const TrainProgress&) {}  // after every step of this rank; must be cheap
  virtual void on_report(const StepReport&) {}   // every log_every steps, on every rank
  virtual void on_eval(const EvalReport&) {}
  virtual void on_save(const TrainProgress&, const std::string& /*path*/) {}
  virtual void on_end(const TrainResult&) {}
};

}  // namespace engine
