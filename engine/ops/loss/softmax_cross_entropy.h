// Softmax and cross entropy in one: loss_i = logsumexp(logits_i) - sum_c target_ic logits_ic, in
// the numerically safe form. The target is 1 - s at the label plus s / classes everywhere, s the
// label smoothing (Szegedy et al., 2016; PyTorch's). logits [rows, classes], labels [rows] of i32,
// loss [rows], dlogits [rows, classes]. On a CUDA device loss and dloss are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Writes per-row losses and, when `gradient` is present, gradient = softmax(logits) - target for
// the backward pass; it may be `logits` itself. REQUIRES: 0 <= label_smoothing < 1. Throws
// InputError naming the row and the label when a label is outside [0, classes); on a CUDA device
// such a label goes to context.fault instead, and counts as 0.
struct SoftmaxCrossEntropyForward {
  TensorView logits, labels, loss;
  TensorView gradient{};  // kept for backward; absent in inference
  double label_smoothing = 0;
  // Of i32 [rows], or absent: how many logits come before the label's, the larger ones and the
  // equal ones of lower classes; from 8 on where the row has a NaN. For add_batch_totals().
  TensorView ranks{};
};
void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o);

// dlogits_i = gradient_i * dloss_i. Where it overwrites, dlogits may be `gradient` itself.
struct SoftmaxCrossEntropyBackward {
  TensorView gradient, dloss, dlogits;
  Write write = Write::kOverwrite;
};
void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o);

// Sum of per-row losses in f64, in row order; in host memory only.
double sum_f64(TensorView values);

// What becomes of a batch's rows. correct: those whose label comes before all other classes; top5:
// whose label is among the first five.
struct BatchTotals {
  double loss_sum = 0;
  std::int64_t correct = 0, rows = 0, top5 = 0;
};

// Adds sum_f64(loss), the rows, how many of the forward pass's `ranks` are correct and, where
// `top5` is set, how many are among the first five to *totals, and to *more unless it is null; both
// lie in the memory of the context's device.
struct AddBatchTotals {
  TensorView ranks, loss;
  bool top5;
  BatchTotals* totals;
  BatchTotals* more = nullptr;
};
void add_batch_totals(KernelContext& context, const AddBatchTotals& o);

}  // namespace engine::ops
