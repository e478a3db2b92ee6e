// Copies between strided parts of two tensors: y[y_first + i . y_steps] = scale x[x_first + i .
// x_steps] for all indices i of the axes. It serves permutations, parts, concatenations and
// expansions (x_steps 0), and their gradients. No element of y is written twice, and the rest of y
// stays as it is. x and y may be one tensor if the parts do not overlap. Bound by bytes.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/general/axes.h"

namespace engine::ops {

struct StridedCopy {
  TensorView x, y;
  Axes<2> axes;  // of x and y
  std::int64_t x_first = 0, y_first = 0;
  double scale = 1;
  Write write = Write::kOverwrite;
};

// Throws ShapeError if an index lies outside of x or y.
void strided_copy(KernelContext& context, const StridedCopy& o);

}  // namespace engine::ops
