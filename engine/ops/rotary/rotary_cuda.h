// Rotary position embedding on a CUDA device. rotary.h describes and rotary.cc checks the operands.
#pragma once

#include "engine/ops/rotary/rotary_operands.h"

namespace engine::ops::cuda {

void rotary(KernelContext& context, const Rotary& o, const RotaryTurns& turns);

}  // namespace engine::ops::cuda
