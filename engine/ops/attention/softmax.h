// Softmax of each row: y = e^(x - largest) / the sum of e^(x - largest) over the row.
// x, y, dy, dx [rows..., width]. The results equal those of PyTorch's softmax(dim=-1).
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

void softmax_forward(KernelContext& context, TensorView x, TensorView y);  // y may be x

// dx = y (dy - the sum of y dy over the row). dx may be dy (with kOverwrite).
void softmax_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                      Write write);

}  // namespace engine::ops
