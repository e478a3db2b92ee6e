// Pooling on a CUDA device. pool2d.h describes and pool2d.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/pool/pool2d.h"

namespace engine::ops::cuda {

void max_pool2d_forward(KernelContext& context, const MaxPool2dForward& o);
void max_pool2d_backward(KernelContext& context, const MaxPool2dBackward& o);
void average_pool2d_forward(KernelContext& context, const AveragePool2dForward& o);
void average_pool2d_backward(KernelContext& context, const AveragePool2dBackward& o);

// For n images of `pixels` pixels.
void global_average_pool_forward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                 std::int64_t channels, TensorView x, TensorView y);
void global_average_pool_backward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                  std::int64_t channels, TensorView dy, TensorView dx, Write write);

}  // namespace engine::ops::cuda
