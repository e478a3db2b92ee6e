// Softmax and cross entropy in one: loss_i = logsumexp(logits_i) - sum_c target_ic logits_ic, in the numerically safe form.
// The target is 1 - s at the label plus s / classes everywhere, s the label smoothing (Szegedy et al., 2016; PyTorch's).
// logits [rows, classes], labels [rows] of i32, loss [rows], dlogits [rows, classes].
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/kernels/kernel_context.h"

namespace engine::kernels {

// Writes per-row losses and, when `gradient` is present, gradient = softmax(logits) - target for the backward pass.
// REQUIRES: 0 <= label_smoothing < 1.
// Throws InputError naming the row and the label when a label is outside [0, classes).
void softmax_cross_entropy_forward(KernelContext& context, TensorView logits, TensorView labels, TensorView loss,
                                   TensorView gradient, double label_smoothing = 0);

// dlogits_i = gradient_i * dloss_i
void softmax_cross_entropy_backward(KernelContext& context, TensorView gradient, TensorView dloss, TensorView dlogits,
                                    Write write);

// Rows whose first largest logit is the label.
std::int64_t count_correct(TensorView logits, TensorView labels);

// Rows whose label is among the k largest logits; of equal logits the first count as larger, so that k = 1 is count_correct().
// A row with a NaN does not count. REQUIRES: k >= 1.
std::int64_t count_among_largest(TensorView logits, TensorView labels, std::int64_t k);

// Sum of per-row losses in f64, in row order.
double sum_f64(TensorView values);

}  // namespace engine::kernels
