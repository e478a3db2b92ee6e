// Channel shuffles on a CUDA device. shuffle_channels.h describes and shuffle_channels.cc checks
// the operands. Bound by bytes.
#pragma once

#include "engine/ops/pool/shuffle_channels_operands.h"

namespace engine::ops::cuda {

void shuffle_channels(KernelContext& context, const ShuffleChannels& o);

}  // namespace engine::ops::cuda
