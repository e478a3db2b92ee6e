// Shape checks and scratch carving that the layers share.
#pragma once

#include <cstddef>
#include <span>

#include "engine/core/arena.h"
#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::layers {

// Throw ShapeError with what was expected and what came; the graph puts the layer's name before it.
void expect_inputs(std::span<const Shape> inputs, std::size_t count);
void expect_rank(const Shape& input, int rank, const char* meaning);  // meaning: "[h, w, c]"
// A window of `window` must fit at least once into [h, w, c] with `padding` on each side; it may
// stick out by `spare`. Also throws for a padded input of more than kMaxElements.
void expect_window(const Shape& input, std::int64_t window, std::int64_t padding,
                   std::int64_t spare = 0);

// Throws ModelError "KIND: OPTION must be at least LEAST, not VALUE"; also beyond kMaxExtent.
void expect_at_least(const char* kind, const char* option, std::int64_t value, std::int64_t least);

// Takes a tensor of `shape` from the front of the context's scratch; kernels get the rest. A layer
// that takes tensors this way adds align_up() of their bytes to its scratch_bytes(). REQUIRES:
// enough scratch.
TensorView take_scratch(KernelContext& context, DType dtype, const Shape& shape);

}  // namespace engine::layers
