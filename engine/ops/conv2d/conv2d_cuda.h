// Convolution on a CUDA device. conv2d.h describes and conv2d.cc checks the operands. x, y, weight,
// dy and dx are stored as f32, bf16 or f16; bias, dweight and dbias as f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/conv2d/conv2d_operands.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

// Never decreases with n.
std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype);

// Without a plan (tile 0) plan_on_device() makes one, which does not split k for forward and data;
// with a plan, scratch must have the size that it needs.
void conv2d_forward(KernelContext& context, const Conv2dForward& o, GemmPlan plan = {});
void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o, GemmPlan plan = {});
void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o,
                             GemmPlan plan = {});

}  // namespace engine::ops::cuda
