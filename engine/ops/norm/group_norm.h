// Group normalization (Wu and He, "Group Normalization", 2018); the results equal those of
// PyTorch's GroupNorm (biased variance). Each sample is independent: nothing depends on the batch.
//
//   y = (x - mean) * inverse_std * gamma + beta,  inverse_std = 1 / sqrt(variance + eps), with the
//   mean and variance of a group of adjacent channels of one sample, over all its positions
// x, y, dy, dx [n, places..., channels]; gamma, beta, dgamma, dbeta [channels]; statistics
// [2, n, groups]: means, then inverse_stds. On a CUDA device gamma, beta, their gradients and
// statistics are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns the scratch size of the calls below for x of this shape; grows with n.
std::size_t group_norm_scratch_bytes(const Shape& x, DType dtype,
                                     Device::Kind device = Device::Kind::kCpu);

struct GroupNormForward {
  TensorView x, gamma, beta;
  std::int64_t groups;  // divides the channels
  double eps;
  TensorView y;             // may be x in inference
  TensorView statistics{};  // stored for backward; absent in inference
};
void group_norm_forward(KernelContext& context, const GroupNormForward& o);

// With xhat = (x - mean) * inverse_std and g = dy * gamma:
//   dx = inverse_std * (g - mean of g - xhat * mean of (g * xhat)), means over the group;
//   dgamma = sum of dy * xhat, dbeta = sum of dy, over samples and positions. No result depends on
//   the number of threads.
struct GroupNormBackward {
  TensorView x, gamma, statistics, dy, dgamma, dbeta;
  Write parameter_write = Write::kOverwrite;
  TensorView dx{};  // absent if not needed; may be dy (with kOverwrite)
  Write dx_write = Write::kOverwrite;
};
void group_norm_backward(KernelContext& context, const GroupNormBackward& o);

// Extents of the operands. REQUIRES: the operands are checked.
struct GroupNormSizes {
  std::int64_t n, places, channels, groups, group_channels;
};
inline GroupNormSizes group_norm_sizes(const TensorView& x, std::int64_t groups) {
  const std::int64_t n = x.shape[0], channels = x.shape[x.shape.rank() - 1];
  return {n, n > 0 ? x.count() / n / channels : 0, channels, groups, channels / groups};
}

}  // namespace engine::ops
