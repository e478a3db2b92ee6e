// Normalization by the root mean square of each row (Zhang and Sennrich, 2019); the results equal
// those of PyTorch's RMSNorm.
//
//   y = x * inverse_rms * gamma,  inverse_rms = 1 / sqrt(mean of x^2 + eps) of each row
// x, y, dy, dx [rows..., width]; gamma, dgamma [width]; inverse_rms [rows]. On a CUDA device gamma,
// its gradient and inverse_rms are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Normalizes parts of the rows of x instead, each alone: `count` adjacent parts of gamma's width
// from element `first` of each row on, such as the heads of queries and keys. inverse_rms then is
// [rows, count], and the other elements are neither read nor written.
struct RmsNormParts {
  std::int64_t first = 0, count = 0;  // count 0: whole rows
};

// Rows, the distance between them, and their parts.
struct RmsNormSizes {
  std::int64_t rows, stride, first, count, width;
};

// Returns the scratch size of backward.
std::size_t rms_norm_scratch_bytes(std::int64_t width, Device::Kind device);

struct RmsNormForward {
  TensorView x, gamma;
  double eps;
  TensorView y;              // may be x in inference
  TensorView inverse_rms{};  // stored for backward; absent in inference
  RmsNormParts parts{};
};
void rms_norm_forward(KernelContext& context, const RmsNormForward& o);

// With xhat = x * inverse_rms and g = dy * gamma:
//   dx = inverse_rms * (g - xhat * mean of (g * xhat)), the mean over the row;
//   dgamma = sum of dy * xhat over the rows. The bits do not depend on the number of threads.
struct RmsNormBackward {
  TensorView x, gamma, inverse_rms, dy, dgamma;
  Write parameter_write = Write::kOverwrite;
  TensorView dx{};  // absent if it is not needed; may be dy (with kOverwrite)
  Write dx_write = Write::kOverwrite;
  RmsNormParts parts{};
};
void rms_norm_backward(KernelContext& context, const RmsNormBackward& o);

}  // namespace engine::ops
