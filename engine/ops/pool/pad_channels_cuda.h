// Channel padding on a CUDA device; operands as in pad_channels.h, checked there. Bound: bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void pad_channels_forward(KernelContext& context, std::int64_t rows, std::int64_t channels,
                          std::int64_t before, std::int64_t padded, TensorView x, TensorView y);
void pad_channels_backward(KernelContext& context, std::int64_t rows, std::int64_t channels,
                           std::int64_t before, std::int64_t padded, TensorView dy, TensorView dx,
                           Write write);

}  // namespace engine::ops::cuda
