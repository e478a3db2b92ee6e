// Dense layer on a CUDA device; operands as in dense.h, checked there. Bound: flops, but for few rows or columns: bytes of the
// weights.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/kernels/cuda/gemm_plan.h"
#include "engine/kernels/kernel_context.h"

namespace engine::kernels::cuda {

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype);

// Without a plan (tile 0) each is cut by plan_gemm(); with one, scratch is what that plan needs.
void dense_forward(KernelContext& context, TensorView x, TensorView weight, TensorView bias, bool relu, TensorView y,
                   GemmPlan plan = {});
void dense_backward_data(KernelContext& context, TensorView dy, TensorView weight, TensorView dx, Write write,
                         GemmPlan plan = {});
void dense_backward_weights(KernelContext& context, TensorView x, TensorView dy, TensorView dweight, TensorView dbias,
                            Write write, GemmPlan plan = {});

}  // namespace engine::kernels::cuda
