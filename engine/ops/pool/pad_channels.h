// Zeros around the channels: y[.., before + i] = x[.., i], 0 elsewhere. x [rows.., c], y [rows..,
// before + c + after]. Bound: bytes. Rows are copied whole, so that one source serves every
// instruction set.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

void pad_channels_forward(KernelContext& context, std::int64_t before, TensorView x, TensorView y);

// dx[.., i] = dy[.., before + i]
void pad_channels_backward(KernelContext& context, std::int64_t before, TensorView dy,
                           TensorView dx, Write write);

}  // namespace engine::ops
