// Dense layer on a CUDA device. dense.h describes and dense.cc checks the operands. Bound by flops,
// or by the bytes of the weights for few rows or columns.
#pragma once

#include "engine/ops/dense/dense.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype);

// Enables the warpgroup instructions of sm_90a for large products of bf16 and f16. They are off by
// default, because they have not run on a device yet. Throws CudaError unless the calling thread's
// device has compute capability 9.0.
void allow_warpgroup_products(bool on);

// plan_gemm() for the calling thread's device, with warpgroup instructions if they are allowed and
// useful.
GemmPlan plan_matrix_product(const GemmShape& shape, DType storage, Products products,
                             const GemmResidents& residents = kBoundedResidents);

// Without a plan (tile 0) plan_matrix_product() makes one; with a plan, scratch must have the size
// that it needs.
void dense_forward(KernelContext& context, const DenseForward& o, const GemmPlan& plan = {});
void dense_backward_data(KernelContext& context, const DenseBackwardData& o,
                         const GemmPlan& plan = {});
void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o,
                            const GemmPlan& plan = {});

}  // namespace engine::ops::cuda
