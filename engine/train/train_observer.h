// What a training run tells the outside. Everything that prints, logs or plots is an observer; the
// loop itself is silent.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/train/checks/desync_report.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/saving/train_progress.h"
#include "engine/train/step/step_phases.h"

namespace engine {

struct StepReport {
  TrainProgress progress;
  double loss = 0;  // mean over the global batch of this step
  // Share of right predictions in this step's epoch so far (from where the run began or was resumed
  // on), over all ranks; none where numbers are predicted.
  std::optional<double> train_accuracy{};
  double lr = 0;
  double samples_per_s = 0;  // over all ranks, since the last report
  double step_seconds = 0;   // of a step, since then, without evaluations and saves
  // Means over the steps since the last report: of all ranks together, and of each rank.
  StepPhases phases{};
  std::span<const StepPhases> ranks{};
  // The rank with the most work of its own a step, and how many times the median of the other ranks
  // that is; 1 with one rank.
  int slowest_rank = 0;
  double slowest_ratio = 1;
  std::int64_t averagings = 0, bytes_sent = 0;  // as AveragingReport has them
  std::optional<double> spread{};  // of the replicas, where it was measured since the last report
  // Of the last step's gradients before they were clipped, where steps compute it on the CPU.
  std::optional<double> gradient_norm{};
  // In this run, because of numbers that were not finite; none unless such steps are skipped.
  std::optional<std::int64_t> skipped_steps{};
};

// What an evaluation is judged by.
enum class Measure { kLoss, kAccuracy, kTop5, kPerplexity, kR2 };
const char* to_string(Measure measure);  // "top-5"

// The best of a run's evaluations.
struct BestEvaluation {
  Measure measure = Measure::kAccuracy;
  double value = 0;       // accuracies as shares of 1
  std::int64_t step = 0;  // global, after which it was made
  bool this_one = false;  // the evaluation that tells of it
};

// How far predicted numbers are from the targets, in the targets' own unit.
struct RegressionErrors {
  double mse = 0, mae = 0;  // means of the squared and of the absolute error
  // 1 - (sum of squared errors) / (sum of squared distances of the targets from their mean); NaN
  // where all targets are equal.
  double r2 = 0;
};

struct EvalReport {
  TrainProgress progress;
  std::string split;         // "test"
  double loss = 0;           // mean over all rows but the unknown
  std::int64_t samples = 0;  // each counted once
  std::int64_t rows = 0;     // predictions: samples, or for text samples times positions
  std::int64_t correct = 0;  // rows
  std::int64_t unknown = 0;  // rows of a class that the model lacks: wrong, without a loss
  // Rows whose label is among the five largest logits; none for up to five classes, for it is no
  // news of them.
  std::optional<std::int64_t> top5;
  bool text = false;                         // the data are tokens
  const char* weights = "model";             // or an average of them: "ema", "average"
  std::optional<RegressionErrors> errors{};  // numbers are predicted: nothing is right or wrong
  std::optional<BestEvaluation> best{};      // up to this one, where the run keeps account of it
  double accuracy() const { return share(correct); }
  double top5_accuracy() const { return share(top5.value()); }
  double perplexity() const { return std::exp(loss); }  // of a row; said of text

 private:
  double share(std::int64_t part) const {
    return rows == 0 ? 0 : static_cast<double>(part) / static_cast<double>(rows);
  }
};

struct TrainResult {
  TrainProgress progress;
  double seconds = 0;
  int signal = 0;        // the run was stopped in order by this signal; 0: it ran to its end
  std::string coverage;  // AveragingReport::coverage, and what comparing the replicas gave
  std::int64_t averagings = 0, bytes_sent = 0;
  std::optional<std::int64_t> skipped_steps{};  // as StepReport has them
  std::string stopped_early{};  // why the run ended before its last step, without a signal
  // With a signal: why this rank stopped in the middle of what it did with the others; "": it did
  // not.
  std::string interrupted{};
  bool paused = false;  // before its last step, because a rank asked for it (TrainerParts::pause)
  bool leaves = false;  // with paused: this rank, for good (TrainerParts::leave)
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const TrainProgress&) {}  // after every step of this rank; must be cheap
  // A few times a second, on every rank: the loss of the step just done, as StepReport has it.
  virtual void on_loss(const TrainProgress&, double /*loss*/) {}
  // On every rank, as TrainerOptions::log_every says; a run too short for one gets one at its end.
  virtual void on_report(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_desync(const TrainProgress&, const DesyncReport&) {
  }  // replicas differ; with kAbort the run ends next
  // Told once; unless the action is kContinue the run ends next.
  virtual void on_nonfinite(const TrainProgress&, const NonFiniteReport&) {}
  virtual void on_save(const TrainProgress&, const std::string& /*path*/) {}
  virtual void on_end(const TrainResult&) {}
};

}  // namespace engine
