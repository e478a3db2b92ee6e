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

  // The same weights, but a rank below the mean takes part in only some steps, with an equal share
  // of each; the other ranks divide the rest of a step by their weights. With 3:1, rank 1 gets
  // every second step 16 of 32 samples, so that over two steps it gets a quarter. Equal shares
  // stay equal.
  BatchShares in_whole_steps() const;
  bool are_in_whole_steps() const { return whole_steps_; }

  bool are_equal() const { return before_.empty(); }
  std::string text() const;  // "3:1", "equal"

  // The functions below are for unequal shares.
  int ranks() const { return static_cast<int>(before_.size()) - 1; }
  std::int64_t weight(int rank) const { return before(rank + 1) - before(rank); }
  double fraction(int rank) const {  // of a step
    return static_cast<double>(weight(rank)) / static_cast<double>(total());
  }
  // The fraction of the steps in which `rank` has samples.
  double step_fraction(int rank) const;
  // A step that takes `count` samples from position `first` of the epoch on.
  struct StepSamples {
    std::int64_t step, first, count;
  };
  // Returns the number of samples of the ranks before `rank`.
  std::int64_t samples_before(int rank, const StepSamples& samples) const;
  // Returns the maximum number of samples of `rank` in steps of `count` samples, unless shares are
  // in whole steps; then the maximum for any rank is max_changing_share().
  std::int64_t max_samples(int rank, std::int64_t count) const;

  bool operator==(const BatchShares&) const = default;

 private:
  std::int64_t before(int rank) const { return before_[static_cast<std::size_t>(rank)]; }
  std::int64_t total() const { return before_.back(); }
  bool is_below_mean(int rank) const { return weight(rank) * ranks() < total(); }
  std::int64_t part_before(int rank, const StepSamples& samples) const;
  std::int64_t whole_before(int rank, const StepSamples& samples) const;

  std::vector<std::int64_t> before_;  // sums of the weights of the ranks before each, and of all
  bool whole_steps_ = false;
};

// Divides `parts` parts of a step among `ranks` ranks: rank r has parts [b[r], b[r + 1]), one or
// more, in proportion to `shares` as far as whole parts allow. REQUIRES: ranks <= parts.
std::vector<int> divide_parts(int parts, int ranks, const BatchShares& shares);

// If shares change during a run, a rank gets at most this many times its equal share.
inline constexpr std::int64_t kMaxShareRatio = 4;
// Returns the maximum number of samples of a rank if shares change, in steps of `count` samples.
std::int64_t max_changing_share(std::int64_t count, int ranks);

}  // namespace io
