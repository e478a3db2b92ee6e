// Dense layer on a CUDA device. dense.h describes and dense.cc checks the operands. Bound by flops,
// or by the bytes of the weights for few rows or columns.
#pragma once

#include "engine/ops/dense/dense.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype);

// Without a plan (tile 0) plan_on_device() makes one; with a plan, scratch must have the size
// that it needs.
void dense_forward(KernelContext& context, const DenseForward& o, const GemmPlan& plan = {});
void dense_backward_data(KernelContext& context, const DenseBackwardData& o,
                         const GemmPlan& plan = {});
void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o,
                            const GemmPlan& plan = {});

}  // namespace engine::ops::cuda
