// Products of two tensors, element by element; one may have a single pixel, whose channels scale
// those of the other, as in squeeze and excitation.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// y = a * b. a and y have one shape; b has the same, or is [n, c] or [n, 1, 1, c] for an a of
// [n, h, w, c].
struct Multiply {
  TensorView a, b, y;
};
void multiply_forward(KernelContext& context, const Multiply& o);  // y may be a

// da = dy * b; db = dy * a, summed over the pixels of each sample in an order that depends on the
// shape alone. Either is absent if it is not needed. None may share memory with dy.
struct MultiplyBackward {
  TensorView a, b, dy;
  TensorView da{}, db{};
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};
void multiply_backward(KernelContext& context, const MultiplyBackward& o);

}  // namespace engine::ops
