// Softmax on a CUDA device. softmax.h describes and softmax.cc checks the operands.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void softmax_forward(KernelContext& context, TensorView x, TensorView y);
void softmax_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                      Write write);

}  // namespace engine::ops::cuda
