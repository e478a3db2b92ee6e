// Operators of expanded operands on a CUDA device. broadcast.h describes and broadcast.cc checks
// the operands. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

// The axes are those of a, b and y.
void broadcast_forward(KernelContext& context, const BroadcastForward& o, const Axes<3>& axes);

}  // namespace engine::ops::cuda
