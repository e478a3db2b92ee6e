// The largest elements over some axes: y[k] = the maximum over r of x[k, r], NaN if there is one.
// The gradient goes to the first maximum, in the order of the reduced axes. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/general/axes.h"

namespace engine::ops {

struct ReduceMaxForward {
  TensorView x, y;
  Axes<2> kept, reduced;  // of x and y; y's steps are 0 in `reduced`
};

struct ReduceMaxBackward {
  TensorView x, dy, dx;
  Axes<2> kept, reduced;  // of x (and dx) and dy
  Write write = Write::kOverwrite;
};

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o);
void reduce_max_backward(KernelContext& context, const ReduceMaxBackward& o);

}  // namespace engine::ops
