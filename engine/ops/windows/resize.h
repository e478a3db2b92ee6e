// Images of another size: x [n, h, w, c], y [n, h', w', c]. Each number of y is the nearest one of
// x or lies between four of them (bilinear), as PyTorch's interpolate with align_corners=False.
// Backward gathers: each number of dx is a sum in a fixed order. Bound by bytes.
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops {

void resize_forward(KernelContext& context, const ResizeForward& o);
void resize_backward(KernelContext& context, const ResizeBackward& o);

}  // namespace engine::ops
