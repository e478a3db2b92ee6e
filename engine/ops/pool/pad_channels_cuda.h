// Channel padding on a CUDA device; operands as in pad_channels.h, checked there. Bound: bytes.
#pragma once

#include "engine/ops/pool/pad_channels.h"

namespace engine::ops::cuda {

void pad_channels_forward(KernelContext& context, const PadChannelsForward& o);
void pad_channels_backward(KernelContext& context, const PadChannelsBackward& o);

}  // namespace engine::ops::cuda
