// Layer normalisation over the last dimension (Ba, Kiros and Hinton, 2016); numbers as PyTorch's
// LayerNorm (biased variance).
//
//   y = (x - mean) * inverse_std * gamma + beta,  inverse_std = 1 / sqrt(variance + eps), mean and
//   variance of each row
// x, y, dy, dx [rows..., width]; gamma, beta, dgamma, dbeta [width]; statistics [2, rows]: means,
// then inverse_stds. On a CUDA device gamma, beta, their gradients and statistics are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Scratch of the calls below.
std::size_t layer_norm_scratch_bytes(std::int64_t width, Device::Kind device);

// `statistics` is kept for backward; absent in inference. y may be x in inference.
void layer_norm_forward(KernelContext& context, TensorView x, TensorView gamma, TensorView beta,
                        double eps, TensorView y, TensorView statistics);

// With xhat = (x - mean) * inverse_std and g = dy * gamma:
//   dx = inverse_std * (g - mean of g - xhat * mean of (g * xhat)), means over the row. dx may be
//   dy (with kOverwrite).
void layer_norm_backward_data(KernelContext& context, TensorView x, TensorView gamma,
                              TensorView statistics, TensorView dy, TensorView dx, Write write);

// dgamma = sum of dy * xhat, dbeta = sum of dy, over the rows; the bits do not depend on the number
// of threads.
void layer_norm_backward_parameters(KernelContext& context, TensorView x, TensorView statistics,
                                    TensorView dy, TensorView dgamma, TensorView dbeta,
                                    Write write);

// Both of the above, with fewer passes over memory where the device allows it. dx may be dy (with
// kOverwrite).
void layer_norm_backward(KernelContext& context, TensorView x, TensorView gamma,
                         TensorView statistics, TensorView dy, TensorView dgamma, TensorView dbeta,
                         Write parameter_write, TensorView dx, Write dx_write);

}  // namespace engine::ops
