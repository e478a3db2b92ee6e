// Copies between strided parts of two tensors: y[y_first + i . y_steps] = scale x[x_first + i .
// x_steps] for all indices i of the axes. It serves permutations, parts, concatenations and
// expansions (x_steps 0), and their gradients. No element of y is written twice, and the rest of y
// stays as it is. x and y may be one tensor if the parts do not overlap. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

// Throws ShapeError if an index lies outside of x or y.
void strided_copy(KernelContext& context, const StridedCopy& o);

}  // namespace engine::ops
