// Two-dimensional convolution (cross-correlation, as in PyTorch), zero padding, no dilation. The
// channels are divided into groups, each of which is a convolution of its own: output channel o
// belongs to group o / (out / groups). With as many groups as channels, it is depthwise. x [n, h,
// w, in], weight [kh, kw, in / groups, out], bias [out] or absent, y [n, oh, ow, out], oh = (h + 2
// padding - kh) / stride + 1. Several groups need a CPU: on a CUDA device they throw ModelError.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct Conv2dGeometry {
  std::int64_t in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel_h = 0, kernel_w = 0, stride = 1, padding = 0, groups = 1;

  std::int64_t out_h() const { return (in_h + 2 * padding - kernel_h) / stride + 1; }
  std::int64_t out_w() const { return (in_w + 2 * padding - kernel_w) / stride + 1; }
};

// On the CPU, `products` is that of the context.
std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype,
                                 int threads, Device::Kind device = Device::Kind::kCpu,
                                 Products products = Products::kF32);

struct Conv2dForward {
  Conv2dGeometry geometry;
  TensorView x, weight, y;
  TensorView bias{};
};
void conv2d_forward(KernelContext& context, const Conv2dForward& o);

// Gradient with respect to the input.
struct Conv2dBackwardData {
  Conv2dGeometry geometry;
  TensorView dy, weight, dx;
  Write write = Write::kOverwrite;
};
void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o);

// Gradients of weight and bias.
struct Conv2dBackwardWeights {
  Conv2dGeometry geometry;
  TensorView x, dy, dweight;
  TensorView dbias{};  // absent if there is no bias
  Write write = Write::kOverwrite;
};
void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o);

}  // namespace engine::ops
