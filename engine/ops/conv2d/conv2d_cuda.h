// Convolution on a CUDA device; operands as in conv2d.h, checked there. Storage of x, y, weight and
// their copies in dy and dx: f32, bf16 or f16; bias, dweight and dbias: f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

// Never less for a larger n.
std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype);

// Without a plan (tile 0) each is cut by plan_on_device(), forward and data into no parts of k;
// with one, scratch is what that plan needs.
void conv2d_forward(KernelContext& context, const Conv2dForward& o, GemmPlan plan = {});
void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o, GemmPlan plan = {});
void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o,
                             GemmPlan plan = {});

}  // namespace engine::ops::cuda
