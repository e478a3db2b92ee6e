// GELU on a CUDA device. gelu.h describes and gelu.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/elementwise/gelu.h"

namespace engine::ops::cuda {

void gelu_forward(KernelContext& context, TensorView x, GeluKind kind, TensorView y);
void gelu_backward(KernelContext& context, TensorView x, TensorView dy, GeluKind kind,
                   TensorView dx, Write write);

}  // namespace engine::ops::cuda
