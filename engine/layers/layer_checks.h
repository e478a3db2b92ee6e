// Shape checks, views and scratch allocation that the layers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/tensor_view.h"
#include "engine/layers/layer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::layers {

// Throw ShapeError with the expected and the given shapes; the graph adds the layer's name.
void expect_inputs(std::span<const Shape> inputs, std::size_t count);
void expect_rank(const Shape& input, int rank, const char* meaning);  // meaning: "[h, w, c]"
// A window of `window` must fit at least once into [h, w, c] with `padding` on each side; it may
// extend `spare` beyond the border. Also throws if the padded input has more than kMaxElements.
void expect_window(const Shape& input, std::int64_t window, std::int64_t padding,
                   std::int64_t spare = 0);

// Throws ModelError "KIND: OPTION must be at least LEAST, not VALUE"; also if above kMaxExtent.
void expect_at_least(const char* kind, const char* option, std::int64_t value, std::int64_t least);

// The heads of a projection of queries, keys and values side by side, [positions, (heads + 2
// kv_heads) * size]: queries first, then keys, then values.
struct HeadCounts {
  std::int64_t heads, kv_heads;

  std::int64_t all() const { return heads + 2 * kv_heads; }
};
// Returns the counts; kv_heads 0 stands for `heads`. Throws ModelError "KIND: ..." for fewer than
// one head, and unless kv_heads divides heads.
HeadCounts expect_heads(const char* kind, std::int64_t heads, std::int64_t kv_heads);
// Returns the head size of such an input. Throws ShapeError if it has none.
std::int64_t expect_head_size(const Shape& input, const HeadCounts& counts);

// Views of the rows (the first dimension) from `first` on, and of one sample, [1, ...].
TensorView rows_from(TensorView view, std::int64_t first);
TensorView sample_of(const TensorView& view, std::size_t index);

// Returns the specs of a norm's parameters, `weight` (1) and `bias` (0), with a value per channel.
std::vector<ParameterSpec> norm_parameters(std::int64_t channels);

// Takes a tensor of `shape` from the front of the context's scratch; kernels use the rest. A layer
// that takes tensors this way adds align_up() of their bytes to its scratch_bytes(). REQUIRES: the
// scratch is large enough.
TensorView take_scratch(KernelContext& context, DType dtype, const Shape& shape);

}  // namespace engine::layers
