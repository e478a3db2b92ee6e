// How the parameters are dealt out to the ranks that update them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

// Of so many elements are the slices of all ranks in a bucket together: a rank has whole blocks of
// sum_of_squares(), so that the norm of the gradients has the same bits however they are dealt out.
std::int64_t shard_alignment(int world);
// Buckets that are cut as they are dealt out.
BucketOptions dealt_buckets(BucketOptions buckets, int world);

// Of each bucket every rank has an equal slice, in rank order, as a reduce-scatter leaves it; of
// what is left in the last one, a block at most. What is frozen is dealt out by itself.
// `buckets` are dealt_buckets().
OptimizerShards shard_elements(const ParameterBuffer& parameters, const BucketOptions& buckets,
                               int rank, int world);

// The rank of each of the tensors of so many elements: the largest first, to the rank that has
// least.
std::vector<int> deal_sizes(const std::vector<std::int64_t>& sizes, int world);

// A slot with the gap behind it.
Elements slot_with_gap(const FlatBuffer& buffer, std::size_t slot);

// Whole tensors, each as slot_with_gap(), by deal_sizes().
OptimizerShards deal_tensors(const FlatBuffer& values, int rank, int world);

}  // namespace engine
