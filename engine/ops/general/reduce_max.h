// The largest elements over some axes: y[k] = the maximum over r of x[k, r], NaN if there is one.
// The gradient goes to the first maximum, in the order of the reduced axes. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o);
void reduce_max_backward(KernelContext& context, const ReduceMaxBackward& o);

}  // namespace engine::ops
