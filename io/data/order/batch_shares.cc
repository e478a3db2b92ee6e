// Divides a step at the rounded sums of the weights.
#include "io/data/order/batch_shares.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/base/files/io_error.h"
#include "io/base/numbers/part_bounds.h"

namespace io {

BatchShares::BatchShares(std::span<const std::int64_t> weights) {
  std::int64_t divisor = 0;
  for (const std::int64_t weight : weights) {
    if (weight < 1 || weight > kMaxWeight)
      throw ConfigError("the weight of a rank's share is " + std::to_string(weight) +
                        ", expected 1.." + std::to_string(kMaxWeight));
    divisor = std::gcd(divisor, weight);
  }
  if (std::ranges::adjacent_find(weights, std::not_equal_to()) == weights.end()) return;
  before_.push_back(0);
  for (const std::int64_t weight : weights) before_.push_back(before_.back() + weight / divisor);
}

std::string BatchShares::text() const {
  if (are_equal()) return "equal";
  std::string text;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank > 0) text += ':';
    text += std::to_string(weight(rank));
  }
  return text;
}

BatchShares BatchShares::in_whole_steps() const {
  BatchShares whole = *this;
  whole.whole_steps_ = !are_equal();
  return whole;
}

double BatchShares::step_fraction(int rank) const {
  return whole_steps_ ? std::min(1.0, fraction(rank) * ranks()) : 1.0;
}

std::int64_t BatchShares::samples_before(int rank, const StepSamples& samples) const {
  return whole_steps_ ? whole_before(rank, samples) : part_before(rank, samples);
}

// The samples of a step are divided at (count * sum + phase) / total, rounded down, with the same
// phase for all ranks. The phase moves by the number of samples from step to step. Over the steps
// until it repeats, the rounding cancels exactly.
std::int64_t BatchShares::part_before(int rank, const StepSamples& samples) const {
  return (samples.count * before(rank) + samples.first % total()) / total();
}

// A rank below the mean takes a step whenever step * weight * ranks / total, plus a phase, reaches
// the next integer. The phase is a half, so that the steps of an epoch are rounded to the nearest,
// and the sum of the rates of the ranks before it, which spreads the ranks over the steps. If too
// few of them take part, so that another rank would get more samples than its buffers hold, the
// step is divided in proportion.
std::int64_t BatchShares::whole_before(int rank, const StepSamples& samples) const {
  const std::int64_t ranks_count = ranks(), step = samples.step % total();
  const auto equal_before = [&](std::int64_t r) {
    return (samples.count * r + samples.first % ranks_count) / ranks_count;
  };
  std::int64_t phase = total() / 2, taken = 0, taken_before = 0, other_weights = 0,
               other_before = 0, largest_other = 0;
  for (int r = 0; r < ranks_count; ++r) {
    if (r == rank) {
      taken_before = taken;
      other_before = other_weights;
    }
    if (!is_below_mean(r)) {
      other_weights += weight(r);
      largest_other = std::max(largest_other, weight(r));
      continue;
    }
    const std::int64_t rate = weight(r) * ranks_count, at = step * rate + phase % total();
    if ((at + rate) / total() > at / total()) taken += equal_before(r + 1) - equal_before(r);
    phase += rate;
  }
  if (rank == ranks_count) return samples.count;
  const std::int64_t rest = samples.count - taken;
  if ((rest * largest_other - 1) / other_weights + 1 >
      max_changing_share(samples.count, static_cast<int>(ranks_count)))
    return part_before(rank, samples);
  // Golden-ratio steps: this rounding has no period in common with the steps that ranks take.
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  const auto rounding =
      static_cast<std::int64_t>(((static_cast<std::uint64_t>(samples.step) * kGolden) >> 32) %
                                static_cast<std::uint64_t>(other_weights));
  return taken_before + (rest * other_before + rounding) / other_weights;
}

std::int64_t BatchShares::max_samples(int rank, std::int64_t count) const {
  return (count * weight(rank) + total() - 1) / total();
}

std::vector<int> divide_parts(int parts, int ranks, const BatchShares& shares) {
  std::vector<int> bounds;
  for (int rank = 0; rank <= ranks; ++rank) {
    // Equal: rounded down. Otherwise to the nearest part, but each rank has one.
    const std::int64_t bound = shares.are_equal()
                                   ? base::part_begin(std::int64_t{parts}, rank, ranks)
                                   : shares.samples_before(rank, {0, 0, 2 * std::int64_t{parts}});
    bounds.push_back(static_cast<int>(shares.are_equal() ? bound : (bound + 1) / 2));
  }
  for (int rank = 1; rank < ranks; ++rank) {
    int& bound = bounds[static_cast<std::size_t>(rank)];
    bound = std::clamp(bound, bounds[static_cast<std::size_t>(rank) - 1] + 1, parts);
  }
  for (int rank = ranks - 1; rank > 0; --rank) {
    int& bound = bounds[static_cast<std::size_t>(rank)];
    bound = std::min(bound, bounds[static_cast<std::size_t>(rank) + 1] - 1);
  }
  return bounds;
}

std::int64_t max_changing_share(std::int64_t count, int ranks) {
  return std::min(count, (kMaxShareRatio * count - 1) / ranks + 1);
}

}  // namespace io
