// Implements comparisons and counters.
#include "engine/train/best_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "io/base/text/text_parts.h"

namespace engine {
namespace {

// Returns NaN if there is none, which is never the best.
double value_of(Measure measure, const EvalReport& report) {
  if (!report.is_finite()) return std::numeric_limits<double>::quiet_NaN();
  switch (measure) {
    case Measure::kLoss:
      return report.loss;
    case Measure::kAccuracy:
      return report.accuracy();
    case Measure::kTop5:
      return report.top5_accuracy();
    case Measure::kPerplexity:
      return report.perplexity();
    case Measure::kR2:
      if (report.errors) return report.errors->r2;
      break;
    case Measure::kMap:
      if (report.labels) return report.labels->mean_average_precision();
      break;
    case Measure::kMeanIou:
      if (report.mean_iou) return *report.mean_iou;
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

constexpr std::string_view kCounterPrefix = "best.";

}  // namespace

const char* to_string(Measure measure) {
  switch (measure) {
    case Measure::kLoss:
      return "loss";
    case Measure::kAccuracy:
      return "accuracy";
    case Measure::kTop5:
      return "top-5";
    case Measure::kPerplexity:
      return "perplexity";
    case Measure::kR2:
      return "R2";
    case Measure::kMap:
      return "mAP";
    case Measure::kMeanIou:
      return "mean IoU";
  }
  return "unknown";
}

// Returns the improvement over another evaluation; infinite if there is none, NaN for a NaN.
double BestModel::gain(double value, const std::optional<Evaluation>& over) const {
  if (!over) return std::isnan(value) ? value : std::numeric_limits<double>::infinity();
  const bool high = options_.measure == Measure::kAccuracy || options_.measure == Measure::kTop5 ||
                    options_.measure == Measure::kR2 || options_.measure == Measure::kMap ||
                    options_.measure == Measure::kMeanIou;
  return high ? value - over->value : over->value - value;
}

bool BestModel::update(EvalReport& report) {
  const std::int64_t step = report.progress.global_step;
  const double value = value_of(options_.measure, report);
  const bool again = step == last_step_, better = !again && gain(value, best_) > 0;
  if (better) best_ = {value, step};
  if (!again) {
    const double improvement = gain(value, improved_);
    const bool enough = improvement > 0 && improvement >= options_.min_delta;
    if (enough) improved_ = {value, step};
    waited_ = enough ? 0 : waited_ + 1;
  }
  last_step_ = step;
  if (best_) report.best = {options_.measure, best_->value, best_->step, better};
  return better && options_.keep;
}

std::string BestModel::why_stopped() const {
  std::string text = std::string("no improvement of ") + to_string(options_.measure);
  if (options_.min_delta > 0) text += " by at least " + base::shortest_text(options_.min_delta);
  return text + " in " + std::to_string(waited_) + (waited_ == 1 ? " evaluation" : " evaluations");
}

void BestModel::capture(StateCopy& copy) const {
  const auto add = [&](const char* name, std::int64_t value) {
    copy.checkpoint().counters.emplace_back(std::string(kCounterPrefix) + name, value);
  };
  const auto add_evaluation = [&](const std::string& name, const Evaluation& e) {
    add((name + "value").c_str(), std::bit_cast<std::int64_t>(e.value));
    add((name + "step").c_str(), e.step);
  };
  if (last_step_ < 0) return;
  add("measure", static_cast<std::int64_t>(options_.measure));
  add("judged", last_step_);
  add("waited", waited_);
  if (best_) add_evaluation("", *best_);
  if (improved_) add_evaluation("improved_", *improved_);
}

void BestModel::restore(const io::Checkpoint& checkpoint, const std::string& source,
                        const std::function<void(const std::string&)>& notice) {
  const auto find = [&](const std::string& name) {
    return find_counter(checkpoint.counters, std::string(kCounterPrefix) + name, -1);
  };
  best_ = improved_ = {};
  waited_ = 0;
  last_step_ = -1;
  const std::int64_t measure = find("measure");
  if (measure < 0) return;  // no evaluation was compared
  if (measure != static_cast<std::int64_t>(options_.measure)) {
    if (notice)
      notice(source + " compared its evaluations by another metric than " +
             to_string(options_.measure) + ": the best evaluation is reset");
    return;
  }
  const std::string& before = checkpoint.test_digest;
  if (!before.empty() && !options_.test_digest.empty() && before != options_.test_digest) {
    if (notice)
      notice(source + " was evaluated on other test samples: the best evaluation is reset");
    return;
  }
  const auto evaluation = [&](const std::string& name) -> std::optional<Evaluation> {
    const std::int64_t step = find(name + "step");
    if (step < 0) return std::nullopt;
    return Evaluation{std::bit_cast<double>(find(name + "value")), step};
  };
  best_ = evaluation("");
  improved_ = evaluation("improved_");
  waited_ = std::max<std::int64_t>(0, find("waited"));
  last_step_ = find("judged");
}

std::optional<std::int64_t> best_step_of(const io::Checkpoint& checkpoint) {
  const std::int64_t step =
      find_counter(checkpoint.counters, std::string(kCounterPrefix) + "step", -1);
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace engine
