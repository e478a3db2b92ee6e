// Batch normalization over all but the last dimension, in the four phases that synchronized
// statistics need as well. Source: Ioffe and Szegedy, 2015; the results equal those of PyTorch's
// BatchNorm2d (biased variance to normalize, unbiased for the running variance).
//
// Operands: x, y, dy, dx [rows..., channels]; gamma, beta, mean, inverse_std, dgamma, dbeta
// [channels]. On a CUDA device x, y, dy, dx and residuals have the storage type of activations, and
// all [channels] operands are f32.
//   y = relu?( (x - mean) * inverse_std * gamma + beta + residual )
//   where residual is absent or has the shape of y
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype,
                                     int threads, Device::Kind device = Device::Kind::kCpu);

// sums [2, channels] of f64: per channel the mean and the sum of squared differences from it, over
// the rows of x (two passes or Welford: no cancellation). Zero rows give zeros.
void batch_norm_statistics(KernelContext& context, TensorView x, TensorView sums);

// Computes from `sums` over `rows` rows: mean, inverse_std = 1 / sqrt(biased variance + eps); and,
// if present, running = (1 - momentum) * running + momentum * new, with the unbiased variance. One
// row leaves running_var unchanged, since it gives no estimate of a variance. Zero rows leave the
// running statistics unchanged and give mean 0, inverse_std 1 / sqrt(eps).
struct BatchNormFinishStatistics {
  TensorView sums;
  std::int64_t rows;
  double eps, momentum;
  TensorView mean, inverse_std;
  TensorView running_mean{}, running_var{};
};
void batch_norm_finish_statistics(KernelContext& context, const BatchNormFinishStatistics& o);

// Inference: mean = running_mean, inverse_std = 1 / sqrt(running_var + eps).
struct BatchNormFromRunning {
  TensorView running_mean, running_var;
  double eps;
  TensorView mean, inverse_std;
};
void batch_norm_from_running(KernelContext& context, const BatchNormFromRunning& o);

struct BatchNormNormalize {
  TensorView x, mean, inverse_std, gamma, beta;
  TensorView residual{};
  bool relu = false;
  TensorView y;
};
void batch_norm_normalize(KernelContext& context, const BatchNormNormalize& o);

// First backward pass. g = dy * (y > 0) if there is a ReLU, otherwise dy. sums [2, channels] of
// f64: sum(g) and sum(g * xhat), over the rows. dresidual, if present, receives g.
struct BatchNormBackwardSums {
  TensorView x;
  TensorView y{};  // output of the ReLU; absent without one
  TensorView dy, mean, inverse_std, sums;
  TensorView dresidual{};
  Write write_residual = Write::kOverwrite;
};
void batch_norm_backward_sums(KernelContext& context, const BatchNormBackwardSums& o);

// dgamma = sum(g xhat), dbeta = sum(g): conversions of the sums.
struct BatchNormBackwardParameters {
  TensorView sums, dgamma, dbeta;
  Write write = Write::kOverwrite;
};
void batch_norm_backward_parameters(KernelContext& context, const BatchNormBackwardParameters& o);

// Second backward pass: dx = gamma * inverse_std * (g - sum(g)/rows - xhat * sum(g xhat)/rows).
// `sums` and `rows` are those of the whole normalized group (with synchronized statistics: of all
// ranks).
struct BatchNormBackwardData {
  TensorView x;
  TensorView y{};  // output of the ReLU; absent without one
  TensorView dy, mean, inverse_std, gamma, sums;
  std::int64_t rows;
  TensorView dx;
  Write write = Write::kOverwrite;
};
void batch_norm_backward_data(KernelContext& context, const BatchNormBackwardData& o);

}  // namespace engine::ops
