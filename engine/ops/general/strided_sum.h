// Sums over some axes of strided operands: y[k] = scale * the sum over s of a term of u[k, s], v[k,
// s] and w[k, s]. It serves reductions and the gradients of operators that expand operands. y has
// u's dtype, or the dtype of gradients of parameters. Sums are float64, in an order that depends
// only on the axes. Bound by bytes.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/general/axes.h"

namespace engine::ops {

// The terms of a sum, of elements of up to three operands.
enum class SumTerm : std::uint8_t {
  kValue,     // u
  kNegative,  // -u
  kProduct,   // u v
  kQuotient,  // u / v
  kDivisor,   // -u v / w^2, the gradient of a quotient v / w
};

struct StridedSum {
  SumTerm term = SumTerm::kValue;
  TensorView u, v{}, w{};  // absent if the term does not have it
  TensorView y;
  Axes<4> kept, summed;  // of u, v, w and y; y's steps are 0 in `summed`
  double scale = 1;
  Write write = Write::kOverwrite;
};

// Throws ShapeError if an index lies outside of an operand.
void strided_sum(KernelContext& context, const StridedSum& o);

}  // namespace engine::ops
