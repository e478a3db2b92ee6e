// Assigns the parameters to the ranks that update them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

// Returns the element count of which every bucket is a multiple. A rank then has whole blocks of
// sum_of_squares(), so that the norm of the gradients has the same bits for any number of ranks.
std::int64_t shard_alignment(int world);
// Returns `buckets` aligned for sharding over `world` ranks.
BucketOptions sharded_buckets(BucketOptions buckets, int world);

// Every rank has an equal slice of each bucket, in rank order, as a reduce-scatter leaves it; the
// remainder in the last bucket is at most one block. Frozen parameters are assigned separately.
// `buckets` come from sharded_buckets().
OptimizerShards shard_elements(const ParameterBuffer& parameters, const BucketOptions& buckets,
                               int rank, int world);

// Returns the rank of each tensor, given the element counts: the largest tensor first, to the rank
// with the fewest elements so far.
std::vector<int> assign_owners(const std::vector<std::int64_t>& sizes, int world);

// Returns a slot with the gap after it.
Elements slot_with_gap(const FlatBuffer& buffer, std::size_t slot);

// Assigns whole tensors, each as slot_with_gap(), by assign_owners().
OptimizerShards shard_tensors(const FlatBuffer& values, int rank, int world);

}  // namespace engine
