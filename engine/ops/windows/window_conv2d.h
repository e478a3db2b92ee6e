// Two-dimensional convolution (cross-correlation, as in PyTorch) of any kernel, stride, dilation
// and padding: patches, a chunk of lines at a time, times the weight. Convolutions with a square
// kernel, equal strides and symmetric padding are faster with conv2d.h. x [n, h, w, in], weight
// [out, kh, kw, in / groups], bias [out] or absent, y [n, oh, ow, out]. Chunks depend only on the
// geometry, so that results do not depend on the number of threads. Depthwise convolutions have no
// patches: depthwise_windows.h.
//
// A transposed convolution is the same with x and y exchanged: its forward pass is
// window_conv2d_backward_data().
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops {

// Returns the scratch size of each call below, for up to `n` images. On the CPU, `products` is that
// of the context.
std::size_t window_conv2d_scratch_bytes(const WindowConv2d& conv, std::int64_t n, DType dtype,
                                        int threads, Device::Kind device = Device::Kind::kCpu,
                                        Products products = Products::kF32);

void window_conv2d_forward(KernelContext& context, const WindowConv2dForward& o);

void window_conv2d_backward_data(KernelContext& context, const WindowConv2dBackwardData& o);

void window_conv2d_backward_weights(KernelContext& context, const WindowConv2dBackwardWeights& o);

}  // namespace engine::ops
