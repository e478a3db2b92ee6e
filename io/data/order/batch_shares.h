// Divides the samples of a step among ranks in proportion to weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace io {

// With weights 3:1, rank 0 gets 24 of 32 samples and rank 1 gets 8. If a step does not divide
// exactly, a rank gets its part of it rounded up in some steps and down in others, so that its sum
// over steps is in proportion, and a rank whose part is below one sample gets one in some steps.
class BatchShares {
 public:
  static constexpr std::int64_t kMaxWeight = 10'000;

  BatchShares() = default;  // equal shares
  // One weight for each rank. Only their proportion counts; equal weights are equal shares. Throws
  // ConfigError for a weight outside 1 .. kMaxWeight.
  explicit BatchShares(std::span<const std::int64_t> weights);

  bool are_equal() const { return before_.empty(); }
  std::string text() const;  // "3:1", "equal"

  // The functions below are for unequal shares.
  int ranks() const { return static_cast<int>(before_.size()) - 1; }
  std::int64_t weight(int rank) const { return before(rank + 1) - before(rank); }
  double fraction(int rank) const {  // of a step
    return static_cast<double>(weight(rank)) / static_cast<double>(total());
  }
  // Returns the number of samples of the ranks before `rank`, in a step that takes `count` samples
  // from position `first` of the epoch on.
  std::int64_t samples_before(int rank, std::int64_t first, std::int64_t count) const;
  // Returns the maximum number of samples of `rank` in steps of `count` samples.
  std::int64_t max_samples(int rank, std::int64_t count) const;

  bool operator==(const BatchShares&) const = default;

 private:
  std::int64_t before(int rank) const { return before_[static_cast<std::size_t>(rank)]; }
  std::int64_t total() const { return before_.back(); }

  std::vector<std::int64_t> before_;  // sums of the weights of the ranks before each, and of all
};

// Divides `parts` parts of a step among `ranks` ranks: rank r has parts [b[r], b[r + 1]), one or
// more, in proportion to `shares` as far as whole parts allow. REQUIRES: ranks <= parts.
std::vector<int> divide_parts(int parts, int ranks, const BatchShares& shares);

// If shares change during a run, a rank gets at most this many times its equal share.
inline constexpr std::int64_t kMaxShareRatio = 4;
// Returns the maximum number of samples of a rank if shares change, in steps of `count` samples.
std::int64_t max_changing_share(std::int64_t count, int ranks);

}  // namespace io
