// Softmax with cross entropy on a CUDA device. softmax_cross_entropy.h describes and
// softmax_cross_entropy.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::ops::cuda {

// Labels outside [0, classes) are reported to context.fault and count as 0.
void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o);
void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o);
void add_batch_totals(KernelContext& context, const AddBatchTotals& o);

}  // namespace engine::ops::cuda
