// Resizing on a CUDA device. resize.h describes and resize.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops::cuda {

void resize_forward(KernelContext& context, const ResizeForward& o);
void resize_backward(KernelContext& context, const ResizeBackward& o);

}  // namespace engine::ops::cuda
