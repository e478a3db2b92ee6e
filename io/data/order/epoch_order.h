// The order of samples in an epoch, as a replaceable component (--sampler).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/data/dataset/dataset.h"
#include "io/data/order/sample_order.h"
#include "io/data/order/sampler.h"

namespace io {

// "shuffle": null, the Sampler's own permutation. "stratified": equal proportions of the classes of
// `dataset` throughout the epoch, so that each batch has approximately the data set's distribution.
// Throws ConfigError for a data set without classes.
std::unique_ptr<EpochOrder> make_epoch_order(const std::string& name, const Dataset& dataset);

// Checks that the ranks' samples of two epochs are as options.uneven promises: each sample once
// with kJoin, at most once with kDrop, at least once with kPad. Throws DataError with the first
// sample that violates this. It costs world_size epochs' orders.
struct PartitionCheck {
  int epochs = 0;
  std::int64_t left_out = 0, repeated = 0;  // per epoch: samples that no rank or several ranks take
};
PartitionCheck check_partition(const SamplerOptions& options);

}  // namespace io
