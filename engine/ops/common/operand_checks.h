// Checks of operands that all kernels make once, before the work. They throw ShapeError with a text
// that names the kernel, the operand and both values; they allocate only when they throw.
#pragma once

#include <string_view>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Throws ShapeError unless the operand is present and has this dtype (or, without one, is f32 or
// f64; in device memory also bf16 or f16).
void check_dtype(std::string_view kernel, std::string_view operand, const TensorView& view,
                 DType expected);
void check_floating(std::string_view kernel, std::string_view operand, const TensorView& view);
// The same for kernels that support activations stored in bf16 on the CPU: bf16 is accepted as well
// if the CPU can compute with it. Throws ModelError if it cannot.
void check_stored(std::string_view kernel, std::string_view operand, const TensorView& view);

// The dtype of statistics, losses, vectors of parameters and gradients of parameters for
// activations of this dtype.
constexpr DType wide_dtype(DType activations) {
  return activations == DType::kF64 ? DType::kF64 : DType::kF32;
}

// Throws ShapeError unless the shapes are equal.
void check_shape(std::string_view kernel, std::string_view operand, const TensorView& view,
                 const Shape& expected);

// Throws ShapeError unless the element counts are equal.
void check_count(std::string_view kernel, std::string_view operand, const TensorView& view,
                 std::int64_t expected);

// Checks that the operand has the dtype and the shape of `like`.
void check_like(std::string_view kernel, std::string_view operand, const TensorView& view,
                const TensorView& like);

// Throws Error if the context has no threads (on a CUDA device: no stream), or if its scratch is
// smaller than `bytes`.
void check_context(std::string_view kernel, const KernelContext& context, std::size_t bytes = 0);

}  // namespace engine::ops
