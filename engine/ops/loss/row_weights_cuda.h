// Weights of rows on a CUDA device. row_weights.h describes and row_weights.cc checks the operands.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void weigh_rows(KernelContext& context, TensorView weights, TensorView rows);

}  // namespace engine::ops::cuda
