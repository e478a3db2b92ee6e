// Layer normalization over the last dimension (Ba, Kiros and Hinton, 2016); the results equal those
// of PyTorch's LayerNorm (biased variance).
//
//   y = (x - mean) * inverse_std * gamma + beta,  inverse_std = 1 / sqrt(variance + eps), with the
//   mean and variance of each row
// x, y, dy, dx [rows..., width]; gamma, beta, dgamma, dbeta [width]; statistics [2, rows]: means,
// then inverse_stds. On a CUDA device gamma, beta, their gradients and statistics are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns the scratch size of the calls below.
std::size_t layer_norm_scratch_bytes(std::int64_t width, Device::Kind device);

struct LayerNormForward {
  TensorView x, gamma, beta;
  double eps;
  TensorView y;             // may be x in inference
  TensorView statistics{};  // stored for backward; absent in inference
};
void layer_norm_forward(KernelContext& context, const LayerNormForward& o);

// With xhat = (x - mean) * inverse_std and g = dy * gamma:
//   dx = inverse_std * (g - mean of g - xhat * mean of (g * xhat)), means over the row.
struct LayerNormBackwardData {
  TensorView x, gamma, statistics, dy;
  TensorView dx;  // may be dy (with kOverwrite)
  Write write = Write::kOverwrite;
};
void layer_norm_backward_data(KernelContext& context, const LayerNormBackwardData& o);

// dgamma = sum of dy * xhat, dbeta = sum of dy, over the rows; the bits do not depend on the number
// of threads.
struct LayerNormBackwardParameters {
  TensorView x, statistics, dy, dgamma, dbeta;
  Write write = Write::kOverwrite;
};
void layer_norm_backward_parameters(KernelContext& context, const LayerNormBackwardParameters& o);

// Computes both, with fewer passes over memory if the device allows it.
struct LayerNormBackward {
  TensorView x, gamma, statistics, dy, dgamma, dbeta;
  Write parameter_write = Write::kOverwrite;
  TensorView dx;  // may be dy (with kOverwrite)
  Write dx_write = Write::kOverwrite;

  LayerNormBackwardData data() const { return {x, gamma, statistics, dy, dx, dx_write}; }
  LayerNormBackwardParameters parameters() const {
    return {x, statistics, dy, dgamma, dbeta, parameter_write};
  }
};
void layer_norm_backward(KernelContext& context, const LayerNormBackward& o);

}  // namespace engine::ops
