// Copies of channels on a CUDA device. copy_channels.h describes and copy_channels.cc checks the
// operands. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void copy_channels(KernelContext& context, TensorView x, std::int64_t from, std::int64_t before,
                   TensorView y, Write write);

}  // namespace engine::ops::cuda
