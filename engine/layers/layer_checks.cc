// Formats the shape errors of the layers.
#include "engine/layers/layer_checks.h"

#include <algorithm>
#include <string>

#include "engine/core/checked.h"

namespace engine::layers {

void expect_inputs(std::span<const Shape> inputs, std::size_t count) {
  if (inputs.size() == count) return;
  throw ShapeError("expected " + std::to_string(count) + (count == 1 ? " input" : " inputs") +
                   ", got " + std::to_string(inputs.size()));
}

void expect_rank(const Shape& input, int rank, const char* meaning) {
  if (input.rank() == rank) return;
  const std::string suffix = meaning[0] == '\0' ? "" : std::string(" ") + meaning;
  throw ShapeError("expected an input of rank " + std::to_string(rank) + suffix + ", got " +
                   input.to_string());
}

void expect_window(const Shape& input, std::int64_t window, std::int64_t padding,
                   std::int64_t spare) {
  expect_rank(input, 3, "[h, w, c]");
  const std::int64_t least = std::max<std::int64_t>(1, window - 2 * padding - spare);
  if (input[0] >= least && input[1] >= least) {
    const Shape padded{input[0] + 2 * padding, input[1] + 2 * padding, input[2]};
    checked_elements(padded.count(), "the padded input " + padded.to_string());
    return;
  }
  throw ShapeError("expected an input of at least " + Shape{least, least, input[2]}.to_string() +
                   " (window " + std::to_string(window) + ", padding " + std::to_string(padding) +
                   "), got " + input.to_string());
}

void expect_at_least(const char* kind, const char* option, std::int64_t value, std::int64_t least) {
  if (value >= least && value <= kMaxExtent) return;
  const bool small = value < least;
  throw ModelError(std::string(kind) + ": " + option + " must be at " +
                   (small ? "least " : "most ") + std::to_string(small ? least : kMaxExtent) +
                   ", not " + std::to_string(value));
}

HeadCounts expect_heads(const char* kind, std::int64_t heads, std::int64_t kv_heads) {
  expect_at_least(kind, "heads", heads, 1);
  expect_at_least(kind, "kv_heads", kv_heads, 0);
  if (kv_heads == 0) return {heads, heads};
  if (heads % kv_heads != 0)
    throw ModelError(std::string(kind) + ": kv_heads must divide the " + std::to_string(heads) +
                     " heads, not " + std::to_string(kv_heads));
  return {heads, kv_heads};
}

std::int64_t expect_head_size(const Shape& input, const HeadCounts& counts) {
  expect_rank(input, 2, "[positions, width]");
  if (input[1] < counts.all() || input[1] % counts.all() != 0)
    throw ShapeError("expected [positions, width] with a width that " +
                     std::to_string(counts.heads) + " heads of queries, " +
                     std::to_string(counts.kv_heads) +
                     " of keys and as many of values divide, got " + input.to_string());
  return input[1] / counts.all();
}

TensorView rows_from(TensorView view, std::int64_t first) {
  const std::int64_t rows = view.shape[0], bytes = static_cast<std::int64_t>(view.bytes()) / rows;
  view.data = static_cast<std::byte*>(view.data) + first * bytes;
  view.shape[0] = rows - first;
  return view;
}

TensorView sample_of(const TensorView& view, std::size_t index) {
  TensorView one = rows_from(view, static_cast<std::int64_t>(index));
  one.shape[0] = 1;
  return one;
}

std::vector<ParameterSpec> norm_parameters(std::int64_t channels) {
  const TensorLayout layout = TensorLayout::plain({channels});
  return {{"weight", layout, {Initializer::Kind::kConstant, 1}},
          {"bias", layout, {Initializer::Kind::kConstant, 0}}};
}

TensorView take_scratch(KernelContext& context, DType dtype, const Shape& shape) {
  const TensorView view{context.scratch.data(), dtype, shape, context.device};
  const std::size_t bytes = align_up(view.bytes());
  require(bytes <= context.scratch.size(), "a layer took more scratch than it asked for");
  context.scratch = context.scratch.subspan(bytes);
  return view;
}

}  // namespace engine::layers
