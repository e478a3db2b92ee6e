// Sums over some axes of strided operands: y[k] = scale * the sum over s of a term of u[k, s], v[k,
// s] and w[k, s]. It serves reductions and the gradients of operators that expand operands. y has
// u's dtype, or the dtype of gradients of parameters. Sums are float64, in an order that depends
// only on the axes. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

// Throws ShapeError if an index lies outside of an operand.
void strided_sum(KernelContext& context, const StridedSum& o);

}  // namespace engine::ops
