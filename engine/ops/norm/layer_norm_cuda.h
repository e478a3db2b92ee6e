// Layer normalisation on a CUDA device; operands as in layer_norm.h, checked there. Bound: bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

std::size_t layer_norm_scratch_bytes(std::int64_t width);

void layer_norm_forward(KernelContext& context, TensorView x, TensorView gamma, TensorView beta,
                        double eps, TensorView y, TensorView statistics);
void layer_norm_backward_data(KernelContext& context, TensorView x, TensorView gamma,
                              TensorView statistics, TensorView dy, TensorView dx, Write write);
void layer_norm_backward_parameters(KernelContext& context, TensorView x, TensorView statistics,
                                    TensorView dy, TensorView dgamma, TensorView dbeta,
                                    Write write);

// Both at once.
void layer_norm_backward(KernelContext& context, TensorView x, TensorView gamma,
                         TensorView statistics, TensorView dy, TensorView dgamma, TensorView dbeta,
                         Write parameter_write, TensorView dx, Write dx_write);

}  // namespace engine::ops::cuda
