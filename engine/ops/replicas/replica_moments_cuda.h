// The statistics of all replicas on a CUDA device. replica_moments.h describes and
// replica_moments.cc checks the operands.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void pack_moments(KernelContext& context, std::int64_t rows, TensorView moments, TensorView block);
void merge_moments(KernelContext& context, TensorView blocks, TensorView moments);
void add_sums(KernelContext& context, TensorView blocks, TensorView sums);

}  // namespace engine::ops::cuda
