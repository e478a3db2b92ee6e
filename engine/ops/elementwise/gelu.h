// Gaussian error linear unit, y = x P(X <= x) for a standard normal X (Hendrycks and Gimpel, 2016),
// element by element.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// The kinds of PyTorch's gelu(approximate=...).
enum class GeluKind {
  kExact,  // "none": y = x / 2 (1 + erf(x / sqrt(2)))
  kTanh,   // "tanh": y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

// x, y, dy, dx have any shape, the same for all. In f32, y is within 6e-7 of the definition,
// relative to the larger of |y| and min(|x|, 1); slopes are within 1e-6.
void gelu_forward(KernelContext& context, TensorView x, GeluKind kind, TensorView y);  // y may be x
// dx = dy y'(x). dx may be dy (with kOverwrite).
void gelu_backward(KernelContext& context, TensorView x, TensorView dy, GeluKind kind,
                   TensorView dx, Write write);

}  // namespace engine::ops
