// Entries of an axis in any order, also repeated ones: y[o, p, i] = x[o, entries[p], i]. The
// gradient of an entry is the sum over its positions, in their order. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

void gather_forward(KernelContext& context, const GatherForward& o);
void gather_backward(KernelContext& context, const GatherBackward& o);

}  // namespace engine::ops
