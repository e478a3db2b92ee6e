// Pooling over NHWC: maximum, average, global average.
// x [n, h, w, c], y [n, oh, ow, c]. Max pooling takes the first of equal values in row-major window order, as PyTorch does;
// padded places never win. Average pooling counts padded places (PyTorch's count_include_pad=True).
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/kernels/kernel_context.h"

namespace engine::kernels {

struct Pool2dGeometry {
  std::int64_t in_h = 0, in_w = 0, channels = 0;
  std::int64_t window = 2, stride = 2, padding = 0;  // padding <= window / 2, window <= 15

  std::int64_t out_h() const { return (in_h + 2 * padding - window) / stride + 1; }
  std::int64_t out_w() const { return (in_w + 2 * padding - window) / stride + 1; }
};

// argmax [n, oh, ow, c] of u8: the winner's place in its window (row * window + column); absent in inference.
void max_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, TensorView x, TensorView y, TensorView argmax);
void max_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, TensorView dy, TensorView argmax, TensorView dx,
                         Write write);

void average_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, TensorView x, TensorView y);
void average_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, TensorView dy, TensorView dx, Write write);

// Mean over h and w: x [n, h, w, c], y [n, c].
void global_average_pool_forward(KernelContext& context, TensorView x, TensorView y);
void global_average_pool_backward(KernelContext& context, TensorView dy, TensorView dx, Write write);

}  // namespace engine::kernels
