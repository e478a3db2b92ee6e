// Optimizer steps on the CPU (CUDA devices: device_step.h): one pass over flat parameter memory.
// Spans have equal length and dtype; gaps between tensors hold zeros and stay zero.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// PyTorch's SGD: g += weight_decay * w; v = first ? g : momentum * v + g; g = nesterov ? g +
// momentum * v : v; w -= lr * g. `velocity` is absent when momentum == 0. `gradient_scale`
// multiplies g first (clipping).
struct SgdStep {
  double lr = 0, momentum = 0, weight_decay = 0, gradient_scale = 1;
  bool nesterov = false, first = false;
};
void sgd_step(KernelContext& context, const SgdStep& step, TensorView gradient, TensorView velocity,
              TensorView value);

// AdamW (Loshchilov and Hutter, 2019) as PyTorch computes it: w -= lr * weight_decay * w; m, v
// updated; w -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps), bias_k = 1 - beta_k^t, t = `count`
// >= 1.
struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01, gradient_scale = 1;
  std::int64_t count = 1;
};
void adamw_step(KernelContext& context, const AdamwStep& step, TensorView gradient,
                TensorView first_moment, TensorView second_moment, TensorView value);

// Sum of squares in f64; the same bits for any number of threads (fixed blocks of 4096, summed in
// order).
double sum_of_squares(KernelContext& context, TensorView values);

// values *= factor
void scale(KernelContext& context, double factor, TensorView values);

}  // namespace engine::ops
