// Which samples a rank takes in which step: a partition of a seeded permutation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

// What happens if samples don't divide evenly among the ranks.
enum class Uneven {
  kJoin,  // every sample once; ranks may have one sample more than others, or none
  kDrop,  // the last, incomplete step of an epoch is left out
  kPad,   // the epoch is filled up to a multiple of the world size with samples from its front, as
          // PyTorch's DistributedSampler
};
// Which positions of the epoch's order belong to which rank.
enum class Shard {
  kContiguous,  // a slice of each step, in rank order
  kStrided,     // position p is of rank p mod world size, as PyTorch's DistributedSampler
  kFile,  // a rank keeps to its part of the data set for the whole run, see file_shard(); the order
          // is within the parts. If the number of ranks changes within an epoch, see Division
};

// Samples [rank * size / world_size, (rank + 1) * size / world_size), rounded down: over the ranks
// they are the data set.
struct FileShard {
  std::int64_t start, end;
};
FileShard file_shard(std::int64_t size, int rank, int world_size);

// How an epoch is divided with Shard::kFile: from position `first` of the epoch on, `ranks` ranks
// share the samples that are left. These are cut, in the order of the data set, into one part for
// each rank, equal but for one sample; a rank takes its part in an order of its own. At position 0
// the parts are those of file_shard().
struct Division {
  std::int64_t first = 0;
  int ranks = 1;
  bool operator==(const Division&) const = default;
};
// The divisions of an epoch that `ranks` ranks continue after `done` samples: those so far, and one
// more if the last is by another number of ranks. REQUIRES: 0 < done, and there is one at 0.
std::vector<Division> continued_divisions(std::vector<Division> divisions, std::int64_t done,
                                          int ranks);

class EpochOrder;

struct SamplerOptions {
  std::int64_t size = 0;  // samples in the data set
  std::int64_t global_batch =
      1;  // samples of one step over all ranks; the last step of an epoch may have fewer
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  const EpochOrder* order = nullptr;  // instead of the permutation (epoch_order.h); outlives the
                                      // sampler; not with Shard::kFile
  Uneven uneven = Uneven::kJoin;
  Shard shard = Shard::kContiguous;
  // Above 0: a step of n samples is cut at n * k / parts for k = 0 .. parts, whatever the world
  // size, and rank r of w takes parts [parts * r / w, parts * (r + 1) / w). The world size or more.
  int parts = 0;
};

// The permutation of an epoch depends on (seed, epoch) only. Step s of the epoch takes positions
// [s*B, min((s+1)*B, size)) of it; each rank takes a contiguous slice of these, in rank order. Over
// an epoch every sample is taken once and ranks' totals differ by at most 1; where B is a multiple
// of the world size every full step splits evenly. The options Uneven, Shard and parts change this
// as they say; sizes and orders of the others stay.
class Sampler {
 public:
  // Starts at epoch 0. Throws ConfigError for a size or batch below 1 or a rank outside the world;
  // without kJoin also for a batch that is no multiple of the world size, and for one that leaves
  // no step; for fewer parts than ranks.
  explicit Sampler(const SamplerOptions& options);

  std::int64_t steps_per_epoch()
      const;  // ceil(size / global_batch); kDrop: floor; kPad: of the padded size
  // `taken`, of a step's samples: the first so many, below global_count(step), were taken before,
  // in steps of another batch. The ranks share the others.
  std::int64_t global_count(std::int64_t step, std::int64_t taken = 0) const;  // over all ranks
  std::int64_t local_count(std::int64_t step) const;                           // on this rank
  std::int64_t local_count(std::int64_t step, int rank, std::int64_t taken = 0) const;
  std::int64_t max_local_count() const;  // may be 0
  std::int64_t max_part_count() const;   // of any part, on any rank

  // Steps outside [0, steps_per_epoch()) make local_count() and indices() throw std::out_of_range.

  // Recomputes the order. `divisions`, with kFile: those of the epoch so far, for an epoch that
  // other numbers of ranks began; then positions before the last of them make indices() throw
  // std::out_of_range. REQUIRES: it is empty, or its positions increase from 0 and are below the
  // size, and the last is by this world. Does not allocate after construction, unless
  // SamplerOptions::order does or there are several divisions.
  void set_epoch(std::int64_t epoch, std::span<const Division> divisions = {});
  // This rank's samples of a step of the current epoch. Valid until set_epoch().
  std::span<const std::int64_t> indices(std::int64_t step, std::int64_t taken = 0) const;
  std::span<const std::int64_t> order() const {
    return order_;
  }  // the whole epoch, all ranks, with what pads it; kFile: part by part

 private:
  struct Slice {
    std::int64_t first, count;  // positions of the order, or of own_
  };
  Slice slice(std::int64_t step, int rank, std::int64_t taken) const;
  std::int64_t own_before(std::int64_t position, int rank) const;
  void set_file_epoch(std::int64_t epoch, std::span<const Division> divisions);
  void set_aside(std::int64_t epoch, const Division& division, std::int64_t end);
  void shuffle_part(std::int64_t epoch, std::int64_t first, int rank, FileShard part);

  SamplerOptions options_;
  std::int64_t positions_ = 0;  // of an epoch, that steps are cut from
  std::int64_t first_ = 0;      // own_ is known from this position on
  std::vector<std::int64_t> order_;
  std::vector<std::int64_t> own_;  // kStrided, kFile: this rank's
  std::vector<std::int64_t>
      turns_;  // kFile: positions p with p mod world size = turns_[r] count for rank r
};

}  // namespace io
