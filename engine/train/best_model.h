// Which evaluation was the best so far, and when there have been enough that were not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/train/saving/stateful.h"
#include "engine/train/train_observer.h"

namespace engine {

struct BestModelOptions {
  Measure measure = Measure::kAccuracy;  // of perplexity and loss the lowest is the best
  bool keep = true;                      // save the state after the best evaluation
  std::int64_t patience = 0;  // evaluations in a row without improvement that end the run; 0: none
  // The least that counts as an improvement there, in the measure's unit (accuracies are shares of
  // 1): as Keras's EarlyStopping, from the last evaluation that was one. 0: any.
  double min_delta = 0;
};

class BestModel final : public Stateful {
 public:
  explicit BestModel(const BestModelOptions& options) : options_(options) {}

  bool keeps() const { return options_.keep; }
  // Whether the state after this step is the best so far, and wanted.
  bool is_best(std::int64_t step) const { return options_.keep && best_ && best_->step == step; }
  // Takes the next evaluation into account and tells in it what is the best now. A second one after
  // the same step counts for nothing. Returns whether it is the best and its state is wanted. The
  // same on all ranks, since the evaluator's reports are. A NaN is never better.
  bool update(EvalReport& report);
  bool should_stop_early() const { return options_.patience > 0 && waited_ >= options_.patience; }
  // "no improvement of accuracy by at least 0.001 in 3 evaluations". REQUIRES: should_stop_early().
  std::string why_stopped() const;

  // Counters "best.*"; values by their bits.
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
  std::optional<Evaluation> best_, improved_;  // improved_: the last that patience counts as such
  std::int64_t waited_ = 0;                    // evaluations since then
  std::int64_t last_step_ = -1;                // judged last
};

}  // namespace engine
