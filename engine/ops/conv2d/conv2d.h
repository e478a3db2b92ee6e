// Two-dimensional convolution (cross-correlation, as in PyTorch), zero padding, no dilation. The
// channels are divided into groups, each of which is a convolution of its own: output channel o
// belongs to group o / (out / groups). With as many groups as channels, it is depthwise. x [n, h,
// w, in], weight [kh, kw, in / groups, out], bias [out] or absent, y [n, oh, ow, out], oh = (h + 2
// padding - kh) / stride + 1.
#pragma once

#include "engine/ops/conv2d/conv2d_operands.h"

namespace engine::ops {

// On the CPU, `products` is that of the context.
std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype,
                                 int threads, Device::Kind device = Device::Kind::kCpu,
                                 Products products = Products::kF32);

void conv2d_forward(KernelContext& context, const Conv2dForward& o);

void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o);

void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o);

}  // namespace engine::ops
