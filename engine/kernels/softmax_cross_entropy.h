// Softmax and cross entropy in one: loss_i = logsumexp(logits_i) - logits_i[label_i], in the numerically safe form.
// logits [rows, classes], labels [rows] of i32, loss [rows], dlogits [rows, classes].
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/kernels/kernel_context.h"

namespace engine::kernels {

// Writes per-row losses and, when `gradient` is present, gradient = softmax(logits) - onehot(label) for the backward pass.
// Throws InputError naming the row and the label when a label is outside [0, classes).
void softmax_cross_entropy_forward(KernelContext& context, TensorView logits, TensorView labels, TensorView loss,
                                   TensorView gradient);

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
