// Images of another size: x [n, h, w, c], y [n, h', w', c]. Each number of y is the nearest one of
// x or lies between four of them (bilinear), as PyTorch's interpolate with align_corners=False.
// Backward gathers: each number of dx is a sum in a fixed order. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/windows/resize_axis.h"

namespace engine::ops {

struct ResizeForward {
  ResizeAxis rows, columns;
  TensorView x, y;
};
void resize_forward(KernelContext& context, const ResizeForward& o);

struct ResizeBackward {
  ResizeAxis rows, columns;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};
void resize_backward(KernelContext& context, const ResizeBackward& o);

}  // namespace engine::ops
