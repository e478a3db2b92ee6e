// The loss of regression predictions, row by row: with e = prediction - target, the mean over a
// row's targets of e^2, of |e|, or of Huber's function (1964), e^2 / 2 up to |e| = 1 and |e| - 1/2
// beyond. The mean over rows is then PyTorch's MSELoss, L1Loss or HuberLoss.
//
// kLogistic, of logits x: log(1 + e^x) for a target 0, t log(1 + e^-x) for a target t > 0, and no
// loss for a target NaN, which is unknown. A row's loss is the sum over its targets, since the mean
// is over the known ones of all rows. For targets 0 and 1 that is PyTorch's BCEWithLogitsLoss; with
// t = w in place of 1, it is the one with pos_weight w.
//
// prediction [rows, targets], target of the same shape, loss [rows]. On a CUDA device target and
// loss are f32, also for predictions of bf16 or f16: targets are not rounded.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/loss/regression_loss_operands.h"

namespace engine::ops {

// Writes per-row losses and, if `gradient` is present, the derivative of each with respect to its
// predictions [rows, targets]: 2 e / targets, sign(e) / targets, which is 0 if they are equal, or e
// limited to -1 and 1, / targets; for kLogistic 1 / (1 + e^-x), or -t / (1 + e^x). A NaN makes its
// row's loss and its element of the gradient NaN. Each row is summed in the order of its targets:
// results do not depend on the number of threads. The backward pass, gradient * dloss, is
// softmax_cross_entropy_backward().
void regression_loss_forward(KernelContext& context, const RegressionLossForward& o);

}  // namespace engine::ops
