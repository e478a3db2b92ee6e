// Fused softmax and cross entropy: loss_i = logsumexp(logits_i) - sum_c target_ic logits_ic, in the
// numerically safe form. The target is 1 - s at the label plus s / classes everywhere, where s is
// the label smoothing (Szegedy et al., 2016; PyTorch's). logits [rows, classes], labels [rows] of
// i32, loss [rows], dlogits [rows, classes]. On a CUDA device loss and dloss are f32.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// The label of a row without a label: its loss, gradient and logits do not count.
inline constexpr std::int32_t kNoLabel = std::numeric_limits<std::int32_t>::min();
// Its rank, which is that of no other row.
inline constexpr std::int32_t kNoRank = -1;

// Writes per-row losses and, if `gradient` is present, gradient = softmax(logits) - target for the
// backward pass; it may be `logits` itself. Both are 0 for a row of kNoLabel, whatever its logits
// are. REQUIRES: 0 <= label_smoothing < 1. Throws InputError with the row and the label if another
// label is outside [0, classes); on a CUDA device it is reported to context.fault instead, and
// counts as 0.
struct SoftmaxCrossEntropyForward {
  TensorView logits, labels, loss;
  TensorView gradient{};  // stored for backward; absent in inference
  double label_smoothing = 0;
  // i32 [rows], or absent: the number of logits that rank before the label's, i.e. the larger ones
  // and the equal ones of lower classes; 8 or more if the row has a NaN, kNoRank for kNoLabel. For
  // add_batch_totals().
  TensorView ranks{};
};
void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o);

// dlogits_i = gradient_i * dloss_i. With kOverwrite, dlogits may be `gradient` itself.
struct SoftmaxCrossEntropyBackward {
  TensorView gradient, dloss, dlogits;
  Write write = Write::kOverwrite;
};
void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o);

// Returns the sum of per-row losses in f64, in row order; in host memory only.
double sum_f64(TensorView values);

// The totals of a batch's rows, without those of kNoRank. correct: rows whose label ranks before
// all other classes; top5: rows whose label is among the first five.
struct BatchTotals {
  double loss_sum = 0;
  std::int64_t correct = 0, rows = 0, top5 = 0;
};

// Adds sum_f64(loss), the number of rows that count, the number of the forward pass's `ranks` that
// are correct and, if `top5` is set, the number that are among the first five to *totals, and to
// *more unless it is null; both are in the memory of the context's device. `ranks` is absent for
// losses without labels, which have no correct rows.
struct AddBatchTotals {
  TensorView ranks, loss;
  bool top5;
  BatchTotals* totals;
  BatchTotals* more = nullptr;
};
void add_batch_totals(KernelContext& context, const AddBatchTotals& o);

}  // namespace engine::ops
