// The events that a training run reports. Everything that prints, logs or plots is an observer; the
// loop itself prints nothing.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/train/checks/desync_report.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/saving/train_progress.h"
#include "engine/train/scores/label_scores.h"
#include "engine/train/step/step_phases.h"

namespace engine {

struct StepReport {
  TrainProgress progress;
  double loss = 0;  // mean over the global batch of this step
  // The fraction of correct predictions in this step's epoch so far (since the run started or was
  // resumed), over all ranks; none unless classes are predicted.
  std::optional<double> train_accuracy{};
  double lr = 0;
  double samples_per_s = 0;  // over all ranks, since the last report
  double step_seconds = 0;   // per step since then, without evaluations and saves
  // Means over the steps since the last report: of all ranks together, and of each rank.
  StepPhases phases{};
  std::span<const StepPhases> ranks{};
  // The rank with the most work of its own per step, and its ratio to the median of the other
  // ranks; 1 with one rank.
  int slowest_rank = 0;
  double slowest_ratio = 1;
  std::int64_t averagings = 0, bytes_sent = 0;  // as in AveragingReport
  std::optional<double> spread{};  // spread of the replicas, if it was measured since the last
                                   // report
  // The norm of the last step's gradients before clipping, if steps compute it on the CPU.
  std::optional<double> gradient_norm{};
  // The number of steps skipped in this run because of non-finite values; none unless such steps
  // are skipped.
  std::optional<std::int64_t> skipped_steps{};
};

// The metric that evaluations are compared by.
enum class Measure { kLoss, kAccuracy, kTop5, kPerplexity, kR2, kMap, kMeanIou };
const char* to_string(Measure measure);  // "top-5"

// The best of a run's evaluations.
struct BestEvaluation {
  Measure measure = Measure::kAccuracy;
  double value = 0;       // accuracies are fractions of 1
  std::int64_t step = 0;  // the global step after which it was made
  bool this_one = false;  // it is the evaluation that contains this
};

// The distance of predictions from regression targets, in the targets' own unit.
struct RegressionErrors {
  double mse = 0, mae = 0;  // means of the squared and of the absolute error
  // 1 - (sum of squared errors) / (sum of squared distances of the targets from their mean); NaN if
  // all targets are equal.
  double r2 = 0;
};

struct EvalReport {
  TrainProgress progress;
  std::string split;         // "test"
  double loss = 0;           // mean over all rows except unknown ones, or over all known labels
  std::int64_t samples = 0;  // each is counted once
  // Predictions: samples, or for text and labels of positions the positions that have a label.
  std::int64_t rows = 0;
  std::int64_t correct = 0;  // rows
  std::int64_t unknown = 0;  // rows of a class that the model lacks: wrong, without a loss
  // Rows whose label is among the five largest logits; none for up to five classes, for it is no
  // news of them.
  std::optional<std::int64_t> top5;
  bool text = false;                         // the data are tokens
  const char* weights = "model";             // or an average of them: "ema", "average"
  std::optional<RegressionErrors> errors{};  // set for regression, which has no correct rows
  std::optional<LabelScores> labels{};       // set for several labels, the same
  std::optional<double> mean_iou{};  // set for labels of positions: mean_iou() of class_counts.h
  std::optional<BestEvaluation> best{};  // up to this evaluation, if the run tracks it
  bool has_classes() const { return !errors && !labels; }
  // Returns false if the model's output is not finite. A set without a row that has a loss is.
  bool is_finite() const { return std::isfinite(loss) || (rows == unknown && !labels); }
  double accuracy() const { return share(correct); }  // NaN unless is_finite()
  double top5_accuracy() const { return share(top5.value()); }
  double perplexity() const { return std::exp(loss); }  // of a row; said of text

 private:
  double share(std::int64_t part) const {
    if (!is_finite()) return std::numeric_limits<double>::quiet_NaN();
    return rows == 0 ? 0 : static_cast<double>(part) / static_cast<double>(rows);
  }
};

// The ranks' shares of a step from now on (--shares auto).
struct ShareReport {
  std::vector<std::int64_t> samples;  // of each rank in the next step, or in the mean of steps
  std::vector<double> samples_per_s;  // measured speed of each rank; empty: shares of a checkpoint
  // With --local-steps, the fraction of the steps that each rank takes; empty: all of them.
  std::vector<double> local_steps = {};
};

struct TrainResult {
  TrainProgress progress;
  double seconds = 0;
  int signal = 0;        // the signal that stopped the run in an orderly way; 0: it ran to its end
  std::string coverage;  // AveragingReport::coverage, and the result of comparing the replicas
  std::int64_t averagings = 0, bytes_sent = 0;
  std::optional<std::int64_t> skipped_steps{};  // as in StepReport
  std::string stopped_early{};  // why the run ended before its last step, without a signal
  // With a signal: why this rank stopped in the middle of an operation with the others; "": it did
  // not.
  std::string interrupted{};
  bool paused = false;  // stopped before its last step, because a rank requested it
                        // (TrainerParts::pause)
  bool leaves = false;  // with paused: this rank leaves permanently (TrainerParts::leave)
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const TrainProgress&) {}  // after every step of this rank; must be cheap
  // Called a few times per second on every rank with the loss of the step just done, as in
  // StepReport.
  virtual void on_loss(const TrainProgress&, double /*loss*/) {}
  // Called on every rank according to TrainerOptions::log_every; a run too short for one gets one
  // at its end.
  virtual void on_report(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_desync(const TrainProgress&, const DesyncReport&) {
  }  // replicas differ; with kAbort the run ends next
  // Called once; unless the action is kContinue the run ends next.
  virtual void on_nonfinite(const TrainProgress&, const NonFiniteReport&) {}
  // Called on every rank between two steps.
  virtual void on_shares(const TrainProgress&, const ShareReport&) {}
  virtual void on_save(const TrainProgress&, const std::string& /*path*/) {}
  virtual void on_end(const TrainResult&) {}
};

}  // namespace engine
