// Dense layer on a CUDA device; operands as in dense.h, checked there. Bound: flops, but for few
// rows or columns: bytes of the weights.
#pragma once

#include "engine/ops/dense/dense.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype);

// Whether large products of bf16 and f16 use the warpgroup instructions of sm_90a; off at first,
// for they have not run on a device yet. Throws CudaError unless the calling thread's device has
// compute capability 9.0.
void allow_warpgroup_products(bool on);

// plan_gemm() for the calling thread's device, with warpgroup instructions where they are allowed
// and there is use for them.
GemmPlan plan_matrix_product(const GemmShape& shape, DType storage, Products products,
                             const GemmResidents& residents = kBoundedResidents);

// Without a plan (tile 0) each is cut by plan_matrix_product(); with one, scratch is what that plan
// needs.
void dense_forward(KernelContext& context, const DenseForward& o, const GemmPlan& plan = {});
void dense_backward_data(KernelContext& context, const DenseBackwardData& o,
                         const GemmPlan& plan = {});
void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o,
                            const GemmPlan& plan = {});

}  // namespace engine::ops::cuda
