// Scales --lr by the number of ranks.
#include "tools/run/choices/rate_choice.h"

#include <cmath>

#include "io/base/text/text_parts.h"

namespace tools {

double scaled_rate(double rate, const UpdateOptions& options, int world_size, int max_ranks) {
  using RateScale = UpdateOptions::RateScale;
  const bool of_root = options.scale == RateScale::kSquareRoot;
  const int full = max_ranks > 0 ? max_ranks : world_size;
  if (options.scale != RateScale::kNone) rate *= of_root ? std::sqrt(full) : full;
  if (options.with_batch) {
    const double share = static_cast<double>(world_size) / full;
    rate *= of_root ? std::sqrt(share) : share;
  }
  return rate;
}

engine::LearningRate learning_rate(const UpdateOptions& options, int world_size, int max_ranks,
                                   const engine::RunLength& run, const engine::TrainProgress& at) {
  engine::LearningRate rate = options.rate;
  rate.base = scaled_rate(rate.base, options, world_size, max_ranks);
  const engine::EpochSteps epochs = run.epochs_from(at);
  rate.total_steps = run.total_steps(at);
  rate.first_step = run.steps == 0 ? epochs.step_of_epoch(0) : 0;
  for (const std::int64_t epoch : options.milestone_epochs)
    rate.milestones.push_back(epochs.step_of_epoch(epoch));
  return rate;
}

std::string rate_arithmetic(const UpdateOptions& options, int world_size, int max_ranks) {
  using RateScale = UpdateOptions::RateScale;
  const bool of_root = options.scale == RateScale::kSquareRoot;
  const int full = max_ranks > 0 ? max_ranks : world_size;
  std::string factors;
  if (options.scale != RateScale::kNone)
    factors += of_root ? " x sqrt(" + std::to_string(full) + " ranks)"
                       : " x " + std::to_string(full) + " ranks";
  if (options.with_batch && world_size != full) {
    const std::string share = std::to_string(world_size) + "/" + std::to_string(full);
    factors += of_root ? " x sqrt(" + share + ")" : " x " + share;
  }
  if (factors.empty()) return "";
  return " (" + base::number_text("%g", options.rate.base) + factors + ")";
}

}  // namespace tools
