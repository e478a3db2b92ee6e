// Losses of regression predictions on a CUDA device. regression_loss.h describes and
// regression_loss.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/loss/regression_loss.h"

namespace engine::ops::cuda {

void regression_loss_forward(KernelContext& context, const RegressionLossForward& o);

}  // namespace engine::ops::cuda
