// The order in which an epoch takes the samples, as a replaceable part (--sampler).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/data/dataset/splits.h"
#include "io/data/order/sample_order.h"
#include "io/data/order/sampler.h"

namespace io {

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
