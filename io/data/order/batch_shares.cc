// Divides a step at the rounded sums of the weights.
#include "io/data/order/batch_shares.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/base/files/io_error.h"

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

// The samples of a step are divided at (count * sum + phase) / total, rounded down, with the same
// phase for all ranks. The phase moves by the number of samples from step to step. Over the steps
// until it repeats, the rounding cancels exactly.
std::int64_t BatchShares::samples_before(int rank, std::int64_t first, std::int64_t count) const {
  return (count * before(rank) + first % total()) / total();
}

std::int64_t BatchShares::max_samples(int rank, std::int64_t count) const {
  return (count * weight(rank) + total() - 1) / total();
}

std::vector<int> divide_parts(int parts, int ranks, const BatchShares& shares) {
  std::vector<int> bounds;
  for (int rank = 0; rank <= ranks; ++rank) {
    // Equal: rounded down. Otherwise to the nearest part, but each rank has one.
    const std::int64_t bound = shares.are_equal()
                                   ? std::int64_t{parts} * rank / ranks
                                   : shares.samples_before(rank, 0, 2 * std::int64_t{parts});
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
