// Gathering on a CUDA device. gather.h describes and gather.cc checks the operands.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

void gather_forward(KernelContext& context, const GatherForward& o);
// Adds the gradients to dx.
void add_gathered(KernelContext& context, const GatherBackward& o);

}  // namespace engine::ops::cuda
