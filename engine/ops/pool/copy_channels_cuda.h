// Copies of channels on a CUDA device. copy_channels.h describes and copy_channels.cc checks the
// operands. Bound by bytes.
#pragma once

#include "engine/ops/pool/copy_channels.h"

namespace engine::ops::cuda {

void copy_channels(KernelContext& context, const CopyChannels& o);

}  // namespace engine::ops::cuda
