// Batch normalisation on a CUDA device; operands as in batch_norm.h, checked there: x and what has
// its shape in the storage of activations, [channels] in f32, sums in f64.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// Grows with the rows.
std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype);

void batch_norm_statistics(KernelContext& context, TensorView x, std::int64_t rows,
                           std::int64_t channels, TensorView sums);
void batch_norm_finish_statistics(KernelContext& context, TensorView sums, std::int64_t rows,
                                  double eps, double momentum, TensorView mean,
                                  TensorView inverse_std, TensorView running_mean,
                                  TensorView running_var);
void batch_norm_from_running(KernelContext& context, TensorView running_mean,
                             TensorView running_var, double eps, TensorView mean,
                             TensorView inverse_std);
void batch_norm_normalize(KernelContext& context, TensorView x, std::int64_t rows,
                          std::int64_t channels, TensorView mean, TensorView inverse_std,
                          TensorView gamma, TensorView beta, TensorView residual, bool relu,
                          TensorView y);
// `y` is absent without a ReLU.
void batch_norm_backward_sums(KernelContext& context, TensorView x, std::int64_t rows,
                              std::int64_t channels, TensorView y, TensorView dy, TensorView mean,
                              TensorView inverse_std, TensorView sums, TensorView dresidual,
                              Write write_residual);
void batch_norm_backward_parameters(KernelContext& context, TensorView sums, TensorView dgamma,
                                    TensorView dbeta, Write write);
void batch_norm_backward_data(KernelContext& context, TensorView x, std::int64_t rows,
                              std::int64_t channels, TensorView y, TensorView dy, TensorView mean,
                              TensorView inverse_std, TensorView gamma, TensorView sums,
                              std::int64_t group_rows, TensorView dx, Write write);

}  // namespace engine::ops::cuda
