// Softmax with cross entropy on a CUDA device; operands as in softmax_cross_entropy.h, checked
// there. Bound: bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::ops::cuda {

std::size_t batch_totals_scratch_bytes();

// Labels outside [0, classes) are reported to context.fault and count as 0.
void softmax_cross_entropy_forward(KernelContext& context, TensorView logits, TensorView labels,
                                   TensorView loss, TensorView gradient, double label_smoothing);
void softmax_cross_entropy_backward(KernelContext& context, TensorView gradient, TensorView dloss,
                                    TensorView dlogits, Write write);
void add_batch_totals(KernelContext& context, TensorView logits, TensorView labels, TensorView loss,
                      bool top5, BatchTotals* totals);

}  // namespace engine::ops::cuda
