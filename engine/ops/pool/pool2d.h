// Pooling over NHWC: maximum, average, global average.
// x [n, h, w, c], y [n, oh, ow, c]. Max pooling selects the first of equal values in row-major
// window order, as PyTorch does, and never a padded place. Average pooling divides by the number of
// the window's places in the padded image, including padding (PyTorch's count_include_pad=True): by
// window * window, or by fewer if ceil_mode lets a window extend beyond it.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct Pool2dGeometry {
  std::int64_t in_h = 0, in_w = 0, channels = 0;
  std::int64_t window = 2, stride = 2, padding = 0;  // padding <= window / 2, window <= 15
  bool ceil_mode = false;  // allows windows that extend beyond the end, if they start in the image
                           // or in the padding before it

  std::int64_t out_h() const { return windows(in_h); }
  std::int64_t out_w() const { return windows(in_w); }
  std::int64_t windows(
      std::int64_t extent) const {  // along an axis of `extent` pixels; 0: no window fits
    const std::int64_t room = extent + 2 * padding - window + (ceil_mode ? stride - 1 : 0);
    if (room < 0) return 0;
    const std::int64_t last = room / stride;
    return ceil_mode && last * stride >= extent + padding ? last : last + 1;
  }
};

// argmax [n, oh, ow, c] of u8: the position of the maximum in its window (row * window + column).
struct MaxPool2dForward {
  Pool2dGeometry geometry;
  TensorView x, y;
  TensorView argmax{};  // stored for backward; absent in inference
};
void max_pool2d_forward(KernelContext& context, const MaxPool2dForward& o);

struct MaxPool2dBackward {
  Pool2dGeometry geometry;
  TensorView dy, argmax, dx;
  Write write = Write::kOverwrite;
};
void max_pool2d_backward(KernelContext& context, const MaxPool2dBackward& o);

struct AveragePool2dForward {
  Pool2dGeometry geometry;
  TensorView x, y;
};
void average_pool2d_forward(KernelContext& context, const AveragePool2dForward& o);

struct AveragePool2dBackward {
  Pool2dGeometry geometry;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};
void average_pool2d_backward(KernelContext& context, const AveragePool2dBackward& o);

// Mean over h and w: x [n, h, w, c], y [n, c].
void global_average_pool_forward(KernelContext& context, TensorView x, TensorView y);
void global_average_pool_backward(KernelContext& context, TensorView dy, TensorView dx,
                                  Write write);

}  // namespace engine::ops
