// Which samples a rank takes in which step: a partition of a seeded permutation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

struct SamplerOptions {
  std::int64_t size = 0;          // samples in the data set
  std::int64_t global_batch = 1;  // samples of one step over all ranks; the last step of an epoch may have fewer
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
};

// The permutation of an epoch depends on (seed, epoch) only. Step s of the epoch takes positions
// [s*B, min((s+1)*B, size)) of it; each rank takes a contiguous slice of these, in rank order. Over an epoch every sample is
// taken once and ranks' totals differ by at most 1; where B is a multiple of the world size every full step splits evenly.
class Sampler {
 public:
  // Starts at epoch 0. Throws ConfigError for a size or batch below 1 or a rank outside the world.
  explicit Sampler(const SamplerOptions& options);

  std::int64_t steps_per_epoch() const;                         // ceil(size / global_batch)
  std::int64_t global_count(std::int64_t step) const;           // samples of that step over all ranks
  std::int64_t local_count(std::int64_t step) const;            // samples of that step on this rank
  std::int64_t local_count(std::int64_t step, int rank) const;  // on another one
  std::int64_t max_local_count() const;

  // Steps outside [0, steps_per_epoch()) make local_count() and indices() throw std::out_of_range.

  // Recomputes the order; does not allocate after construction.
  void set_epoch(std::int64_t epoch);
  // This rank's samples of a step of the current epoch. Valid until set_epoch().
  std::span<const std::int64_t> indices(std::int64_t step) const;
  std::span<const std::int64_t> order() const { return order_; }  // the whole epoch, all ranks

 private:
  struct Slice {
    std::int64_t first, count;  // positions of the order
  };
  Slice slice(std::int64_t step, int rank) const;

  SamplerOptions options_;
  std::vector<std::int64_t> order_;
};

}  // namespace io
