// Combines the statistics of all replicas, gathered in the memory of a CUDA device.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Packs a block of moments: the number of rows, then `moments`, which has per channel the mean,
// then per channel the sum of squared differences from it. f64 in device memory: moments [2,
// channels], block [1 + 2 channels].
void pack_moments(KernelContext& context, std::int64_t rows, TensorView moments, TensorView block);

// Reduces f64 blocks [replicas, ...] by the tree of ordered_tree.h, so that the bits depend only on
// the blocks. Overwrites the blocks.
// merge_moments: blocks of pack_moments(); `moments` becomes that of all rows.
// add_sums: blocks with as many elements as `sums`, which becomes their sum.
void merge_moments(KernelContext& context, TensorView blocks, TensorView moments);
void add_sums(KernelContext& context, TensorView blocks, TensorView sums);

}  // namespace engine::ops
