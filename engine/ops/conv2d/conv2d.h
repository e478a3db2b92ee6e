// Two-dimensional convolution (cross-correlation, as in PyTorch), zero padding, no dilation, no
// groups. x [n, h, w, in], weight [kh, kw, in, out], bias [out] or absent, y [n, oh, ow, out], oh =
// (h + 2 padding - kh) / stride + 1.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct Conv2dGeometry {
  std::int64_t in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel_h = 0, kernel_w = 0, stride = 1, padding = 0;

  std::int64_t out_h() const { return (in_h + 2 * padding - kernel_h) / stride + 1; }
  std::int64_t out_w() const { return (in_w + 2 * padding - kernel_w) / stride + 1; }
};

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype,
                                 int threads, Device::Kind device = Device::Kind::kCpu);

void conv2d_forward(KernelContext& context, const Conv2dGeometry& geometry, TensorView x,
                    TensorView weight, TensorView bias, TensorView y);

// Gradient with respect to the input.
void conv2d_backward_data(KernelContext& context, const Conv2dGeometry& geometry, TensorView dy,
                          TensorView weight, TensorView dx, Write write);

// Gradients of weight and bias (dbias absent when there is no bias).
void conv2d_backward_weights(KernelContext& context, const Conv2dGeometry& geometry, TensorView x,
                             TensorView dy, TensorView dweight, TensorView dbias, Write write);

}  // namespace engine::ops
