// Operators of expanded operands on a CUDA device. broadcast.h describes and broadcast.cc checks
// the operands. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

// The axes are those of a, b and y.
void broadcast_forward(KernelContext& context, const BroadcastForward& o, const Axes<3>& axes);
// The axes are those of the condition, a, b and y.
void choose_forward(KernelContext& context, const ChooseForward& o, const Axes<4>& axes);

}  // namespace engine::ops::cuda
