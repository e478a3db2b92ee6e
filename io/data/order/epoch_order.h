// The order in which an epoch takes the samples, as a replaceable part (--sampler).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/data/order/sampler.h"
#include "io/data/sources/dataset.h"

namespace io {

// A new order: a class of this kind, its name in make_epoch_order() and in the option table. The
// Sampler cuts it into steps and ranks' shares, so that whatever the order is, ranks share it out
// without overlap.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // Writes each of 0 .. order.size() - 1 once. Every rank computes it for itself, several threads
  // may at once, and resuming counts on it: a pure function of the arguments and the data set.
  virtual void fill(std::uint64_t seed, std::int64_t epoch,
                    std::span<std::int64_t> order) const = 0;
};

// "shuffle": null, the Sampler's own permutation. "stratified": the classes of `dataset` in equal
// shares all along the epoch, so that each batch has about the data set's mix. Throws ConfigError
// for a data set without classes.
std::unique_ptr<EpochOrder> make_epoch_order(const std::string& name, const Dataset& dataset);

// Whether the ranks' samples of two epochs are what options.uneven promises: each sample once with
// kJoin, at most once with kDrop, at least once with kPad. Throws DataError that names the first
// sample for which it is not so. Costs world_size epochs' orders.
struct PartitionCheck {
  int epochs = 0;
  std::int64_t left_out = 0, repeated = 0;  // of an epoch: samples that no rank or several take
};
PartitionCheck check_partition(const SamplerOptions& options);

}  // namespace io
