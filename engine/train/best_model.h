// Tracks the best evaluation so far, and ends a run after enough evaluations without improvement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/train/saving/stateful.h"
#include "engine/train/train_observer.h"

namespace engine {

struct BestModelOptions {
  Measure measure = Measure::kAccuracy;  // the lowest perplexity or loss is the best
  bool keep = true;                      // saves the state after the best evaluation
  std::int64_t patience = 0;  // consecutive evaluations without improvement that end the run; 0: no
                              // limit
  // The smallest change that counts as an improvement for `patience`, in the measure's unit
  // (accuracies are fractions of 1): as in Keras's EarlyStopping, relative to the last improvement.
  // 0: any.
  double min_delta = 0;
  // Evaluations of another test set are not compared with those of this run (Checkpoint::
  // test_digest); "": unknown.
  std::string test_digest = {};
};

class BestModel final : public Stateful {
 public:
  explicit BestModel(const BestModelOptions& options) : options_(options) {}

  bool keeps() const { return options_.keep; }
  // Returns true if the state after this step is the best so far and should be saved.
  bool is_best(std::int64_t step) const { return options_.keep && best_ && best_->step == step; }
  // Adds the next evaluation and stores the best one so far in it. A second evaluation after the
  // same step is ignored. Returns true if this one is the best and its state should be saved. The
  // result is the same on all ranks, because the evaluator's reports are. A NaN is never better.
  bool update(EvalReport& report);
  bool should_stop_early() const { return options_.patience > 0 && waited_ >= options_.patience; }
  // "no improvement of accuracy by at least 0.001 in 3 evaluations". REQUIRES: should_stop_early().
  std::string why_stopped() const;

  // Stores counters "best.*"; values are stored as their bits.
  void capture(StateCopy& copy) const override;
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;

 private:
  struct Evaluation {
    double value = 0;
    std::int64_t step = 0;
  };
  double gain(double value, const std::optional<Evaluation>& over) const;

  const BestModelOptions options_;
  std::optional<Evaluation> best_, improved_;  // improved_: the last evaluation that counts as an
                                               // improvement for patience
  std::int64_t waited_ = 0;                    // evaluations since improved_
  std::int64_t last_step_ = -1;                // step of the last evaluation
};

// Returns the step of the best evaluation that a checkpoint states; none if no evaluation had been
// compared.
std::optional<std::int64_t> best_step_of(const io::Checkpoint& checkpoint);

}  // namespace engine
