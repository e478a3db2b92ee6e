// Assigns samples to ranks and steps: a partition of a seeded permutation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/data/order/batch_shares.h"

namespace io {

// The handling of samples that do not divide evenly among the ranks.
enum class Uneven {
  kJoin,  // every sample once; ranks may have one sample more than others, or none
  kDrop,  // the last, incomplete step of an epoch is omitted
  kPad,   // the epoch is padded to a multiple of the world size with samples from its front, as in
          // PyTorch's DistributedSampler
};
// The assignment of positions of the epoch's order to ranks.
enum class Shard {
  kContiguous,  // a slice of each step, in rank order
  kStrided,     // position p belongs to rank p mod world size, as in PyTorch's DistributedSampler
  kFile,  // a rank uses its part of the data set for the whole run, see file_shard(); the order is
          // within the parts. If the number of ranks changes within an epoch, see Division
};

// The samples of a rank by base::part_bounds(); together the ranks have the whole data set.
struct FileShard {
  std::int64_t start, end;
};
FileShard file_shard(std::int64_t size, int rank, int world_size);

// The division of an epoch with Shard::kFile: from position `first` of the epoch on, `ranks` ranks
// share the remaining samples. These are divided, in the order of the data set, into one part for
// each rank, whose sizes differ by at most one sample; each rank takes its part in an order of its
// own. At position 0 the parts are those of file_shard().
struct Division {
  std::int64_t first = 0;
  int ranks = 1;
  bool operator==(const Division&) const = default;
};
// Returns the divisions of an epoch that `ranks` ranks continue after `done` samples: the previous
// ones, and one more if the last one has another number of ranks. REQUIRES: 0 < done, and there is
// one at 0.
std::vector<Division> continued_divisions(std::vector<Division> divisions, std::int64_t done,
                                          int ranks);

class EpochOrder;

struct SamplerOptions {
  std::int64_t size = 0;  // samples in the data set
  std::int64_t global_batch =
      1;  // samples of a step over all ranks; an epoch's last may have fewer
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  const EpochOrder* order = nullptr;  // used instead of the permutation (epoch_order.h); must
                                      // outlive the sampler; not with Shard::kFile
  Uneven uneven = Uneven::kJoin;
  Shard shard = Shard::kContiguous;
  // Above 0: each step is divided into this many parts for any world size, and the parts among the
  // ranks, both by base::part_bounds(). Must be at least the world size.
  int parts = 0;
  // The ranks' shares of each step; unequal ones only with Shard::kContiguous and not with kPad. A
  // division into parts is then in proportion to them (divide_parts()).
  BatchShares shares = {};
  bool shares_change = false;  // set_shares() is called; not with `parts`
};

// The permutation of an epoch depends only on (seed, epoch). Step s of the epoch takes positions
// [s*B, min((s+1)*B, size)) of it; each rank takes a contiguous slice of these, in rank order. Over
// an epoch every sample is taken once and ranks' totals differ by at most 1; if B is a multiple of
// the world size, every full step divides evenly. The options Uneven, Shard and parts change this
// as documented there, without affecting the other sizes and orders.
class Sampler {
 public:
  // Starts at epoch 0. Throws ConfigError for a size or batch below 1 or a rank outside the world;
  // without kJoin also for a batch that is not a multiple of the world size, and for one that
  // leaves no step; for fewer parts than ranks.
  explicit Sampler(const SamplerOptions& options);

  // Returns ceil(size / global_batch); kDrop: floor; kPad: for the padded size.
  std::int64_t steps_per_epoch() const;
  // `taken` is the number of a step's first samples, below global_count(step), that earlier steps
  // with another batch size have used. The ranks share the others.
  std::int64_t global_count(std::int64_t step, std::int64_t taken = 0) const;  // over all ranks
  std::int64_t local_count(std::int64_t step) const;                           // on this rank
  std::int64_t local_count(std::int64_t step, int rank, std::int64_t taken = 0) const;
  std::int64_t max_local_count() const;  // may be 0; for any shares, if these change
  std::int64_t max_part_count() const;   // maximum over all parts and ranks

  // Steps outside [0, steps_per_epoch()) make local_count() and indices() throw std::out_of_range.

  // Recomputes the order. `divisions`, with kFile, are those of the epoch so far, for an epoch that
  // other numbers of ranks started; then indices() throws std::out_of_range for positions before
  // the last one. REQUIRES: it is empty, or its positions increase from 0 and are below the size,
  // and the last one has this world size. Does not allocate after construction, unless
  // SamplerOptions::order does or there are several divisions.
  void set_epoch(std::int64_t epoch, std::span<const Division> divisions = {});
  // Sets the ranks' shares from now on, at any step: the samples of a step do not depend on them.
  // REQUIRES: SamplerOptions::shares_change. Throws ConfigError for shares of another number of
  // ranks or above kMaxShareRatio.
  void set_shares(const BatchShares& shares);
  const BatchShares& shares() const { return options_.shares; }
  // Returns this rank's samples of a step of the current epoch. Valid until set_epoch().
  std::span<const std::int64_t> indices(std::int64_t step, std::int64_t taken = 0) const;
  // Returns the whole epoch of all ranks, with padding; kFile: part by part.
  std::span<const std::int64_t> order() const { return order_; }

 private:
  struct Slice {
    std::int64_t first, count;  // positions in the order, or in own_
  };
  Slice slice(std::int64_t step, int rank, std::int64_t taken) const;
  // Returns the number of samples of the ranks before `rank` among those in [first, end).
  std::int64_t samples_before(int rank, std::int64_t first, std::int64_t end) const;
  std::int64_t own_before(std::int64_t position, int rank) const;
  void set_file_epoch(std::int64_t epoch, std::span<const Division> divisions);
  void set_aside(std::int64_t epoch, const Division& division, std::int64_t end);
  void shuffle_part(std::int64_t epoch, std::int64_t first, int rank, FileShard part);

  SamplerOptions options_;
  std::int64_t positions_ = 0;  // number of positions of an epoch that are divided into steps
  std::int64_t first_ = 0;      // own_ is known from this position on
  std::vector<std::int64_t> order_;
  std::vector<std::int64_t> own_;  // kStrided, kFile: this rank's samples
  // kFile: positions p with p mod world size = turns_[r] count for rank r.
  std::vector<std::int64_t> turns_;
  std::vector<int> part_bounds_;  // with parts: as of divide_parts()
};

}  // namespace io
