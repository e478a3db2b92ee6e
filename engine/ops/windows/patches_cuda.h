// Patches on a CUDA device. patches.h describes and patches.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops::cuda {

void take_patches(KernelContext& context, const Patches& o);
void add_patches(KernelContext& context, const Patches& o);

}  // namespace engine::ops::cuda
