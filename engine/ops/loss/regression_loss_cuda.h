// Losses of regression predictions on a CUDA device. regression_loss.h describes and
// regression_loss.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// `squared`: the loss is RegressionLoss::kSquared, else kAbsolute.
void regression_loss_forward(KernelContext& context, TensorView prediction, TensorView target,
                             bool squared, TensorView loss, TensorView gradient);

}  // namespace engine::ops::cuda
