// Channel padding on a CUDA device. pad_channels.h describes and pad_channels.cc checks the
// operands. Bound by bytes.
#pragma once

#include "engine/ops/pool/pad_channels.h"

namespace engine::ops::cuda {

void pad_channels_forward(KernelContext& context, const PadChannelsForward& o);
void pad_channels_backward(KernelContext& context, const PadChannelsBackward& o);

}  // namespace engine::ops::cuda
