// Adds the weights of a step's samples in the order of the epoch.
#include "engine/train/step/loss_weights.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace engine {

bool are_equal(std::span<const double> weights) {
  return std::ranges::adjacent_find(weights, std::not_equal_to{}) == weights.end();
}

LossWeights::LossWeights(std::vector<double> weights)
    : weights_(std::move(weights)), are_equal_(engine::are_equal(weights_)) {}

double LossWeights::sum(std::span<const std::int64_t> samples) const {
  double total = 0;
  for (const std::int64_t sample : samples) total += weights_[static_cast<std::size_t>(sample)];
  return total;
}

StepWeights LossWeights::of_step(const Step& step, const StepCounts& counts,
                                 std::span<const std::int64_t> own_samples,
                                 std::span<const int> island, io::Sampler& sampler) {
  if (are_equal_) {
    const double each = given() ? weights_[0] : 1;
    return {.local = each * static_cast<double>(counts.local),
            .global = each * static_cast<double>(counts.global),
            .island = each * static_cast<double>(counts.island)};
  }
  if (epoch_ != step.epoch) sampler.set_epoch(epoch_ = step.epoch);
  const std::int64_t first = step.number * sampler.global_count(0) + step.taken;
  const std::span samples = sampler.order().subspan(static_cast<std::size_t>(first),
                                                    static_cast<std::size_t>(counts.global));
  StepWeights weights{.local = sum(own_samples), .global = sum(samples)};
  std::size_t begin = 0;
  for (int rank = 0; begin < samples.size(); ++rank) {
    const auto count = static_cast<std::size_t>(sampler.local_count(step.number, rank, step.taken));
    if (std::ranges::find(island, rank) != island.end())
      weights.island += sum(samples.subspan(begin, count));
    begin += count;
  }
  return weights;
}

}  // namespace engine
