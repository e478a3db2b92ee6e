// Losses of regression predictions on a CUDA device. regression_loss.h describes and
// regression_loss.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/loss/regression_loss_operands.h"

namespace engine::ops::cuda {

void regression_loss_forward(KernelContext& context, const RegressionLossForward& o);

}  // namespace engine::ops::cuda
