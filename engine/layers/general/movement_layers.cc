// Layers that only move numbers: other shapes, other orders of dimensions, and parts along an axis.
#include <algorithm>
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/general/axis_checks.h"
#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/strided_copy.h"

namespace engine::layers {
namespace {

class Reshape final : public Layer {
 public:
  explicit Reshape(std::vector<std::int64_t> shape)
      : Layer({.kind = "reshape", .stores_bf16_on_cpu = true}), shape_(std::move(shape)) {
    if (shape_.size() >= Shape::kMaxRank)
      throw ModelError("reshape: shape has " + std::to_string(shape_.size()) +
                       " dimensions; expected at most " + std::to_string(Shape::kMaxRank - 1));
    if (std::ranges::count(shape_, -1) > 1)
      throw ModelError("reshape: shape has more than one -1; expected at most one");
    for (const std::int64_t extent : shape_)
      if (extent != -1) expect_at_least("reshape", "an extent of shape", extent, 1);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::int64_t count = inputs[0].count();
    std::int64_t known = 1;
    for (const std::int64_t extent : shape_)
      if (extent != -1) known = checked_multiply(known, extent);
    std::vector<std::int64_t> extents = shape_;
    std::ranges::replace(extents, -1, count / known);
    const Shape output{std::span<const std::int64_t>(extents)};
    if (output.count() != count)
      throw ShapeError("expected a shape of the " + std::to_string(count) + " elements of " +
                       inputs[0].to_string() + ", got " + output.to_string());
    return output;
  }
  bool is_alias(std::span<const Shape>) const override { return true; }

  void forward(const LayerRun& run) const override {
    TensorView from = run.inputs[0];
    from.shape = run.output.shape;
    ops::copy_or_add(run.kernels, from, run.output, Write::kOverwrite);
  }
  void backward(const LayerRun& run) const override {
    if (!run.gradients.inputs[0]) return;
    TensorView from = run.gradients.output;
    from.shape = run.gradients.inputs[0].shape;
    ops::copy_or_add(run.kernels, from, run.gradients.inputs[0], run.gradients.input_writes[0]);
  }

 private:
  std::vector<std::int64_t> shape_;
};

class Permute final : public Layer {
 public:
  explicit Permute(std::vector<std::int64_t> order)
      : Layer({.kind = "permute",
               .options = option_list("order", order),
               .stores_bf16_on_cpu = true}),
        order_(std::move(order)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::vector<int> from = dimensions(inputs[0]);
    Shape output = inputs[0];
    for (int d = 0; d < output.rank(); ++d)
      output[d] = inputs[0][from[static_cast<std::size_t>(d)]];
    return output;
  }
  bool is_alias(std::span<const Shape> inputs) const override {
    std::vector<int> moved = dimensions(inputs[0]);
    std::erase_if(moved, [&](int d) { return inputs[0][d] == 1; });
    return std::ranges::is_sorted(moved);
  }

  void forward(const LayerRun& run) const override {
    ops::strided_copy(run.kernels, {.x = run.inputs[0],
                                    .y = run.output,
                                    .axes = axes(run.inputs[0].shape, run.output.shape, 0)});
  }
  void backward(const LayerRun& run) const override {
    const TensorView &dy = run.gradients.output, &dx = run.gradients.inputs[0];
    if (!dx) return;
    ops::strided_copy(run.kernels, {.x = dy,
                                    .y = dx,
                                    .axes = axes(dx.shape, dy.shape, 1),
                                    .write = run.gradients.input_writes[0]});
  }

 private:
  // The dimensions of the input in the order of the output's.
  std::vector<int> dimensions(const Shape& input) const {
    std::vector<int> from;
    for (const std::int64_t axis : order_) from.push_back(expect_axis(input, axis));
    std::vector<int> sorted = from;
    std::ranges::sort(sorted);
    const bool repeats = std::ranges::adjacent_find(sorted) != sorted.end();
    if (repeats || std::ssize(from) != input.rank())
      throw ShapeError("expected an order with each of the " + std::to_string(input.rank()) +
                       " dimensions of " + input.to_string() + " once");
    return from;
  }

  // The axes of a copy whose operand `input_operand` is the layer's input; shapes have the batch.
  ops::Axes<2> axes(const Shape& input, const Shape& output, std::size_t input_operand) const {
    const auto in = ops::dense_steps(input), out = ops::dense_steps(output);
    ops::Axes<2> all;
    const auto add = [&](std::int64_t count, std::int64_t in_step, std::int64_t out_step) {
      ops::Axis<2> axis{.count = count};
      axis.steps[input_operand] = in_step;
      axis.steps[1 - input_operand] = out_step;
      all.add(axis);
    };
    add(input[0], in[0], out[0]);
    for (std::size_t d = 0; d < order_.size(); ++d) {
      const std::int64_t from = order_[d] < 0 ? order_[d] + input.rank() : order_[d] + 1;
      add(output[static_cast<int>(d) + 1], in[static_cast<std::size_t>(from)], out[d + 1]);
    }
    return all;
  }

  std::vector<std::int64_t> order_;
};

// Every `step`-th entry of an axis of a tensor, from `first` on.
struct Part {
  int axis;
  std::int64_t first, step = 1;
};

// Copies the part of `wide` to `narrow`, or with kToPart the other way. Shapes have the batch.
template <bool kToPart>
void copy_part(KernelContext& kernels, const TensorView& wide, const Part& part,
               const TensorView& narrow, Write write) {
  const auto wide_steps = ops::dense_steps(wide.shape), steps = ops::dense_steps(narrow.shape);
  const auto at = static_cast<std::size_t>(part.axis);
  ops::StridedCopy copy{.x = kToPart ? narrow : wide, .y = kToPart ? wide : narrow, .axes = {}};
  (kToPart ? copy.y_first : copy.x_first) = part.first * wide_steps[at];
  copy.write = write;
  for (int d = 0; d < narrow.shape.rank(); ++d) {
    const auto k = static_cast<std::size_t>(d);
    const std::int64_t step = wide_steps[k] * (d == part.axis ? part.step : 1);
    copy.axes.add({narrow.shape[d], {kToPart ? steps[k] : step, kToPart ? step : steps[k]}});
  }
  ops::strided_copy(kernels, copy);
}

class Slice final : public Layer {
 public:
  explicit Slice(const SliceOptions& options)
      : Layer({.kind = "slice",
               .options = {{"axis", static_cast<double>(options.axis)},
                           {"first", static_cast<double>(options.first)},
                           {"count", static_cast<double>(options.count)},
                           {"step", static_cast<double>(options.step)}},
               .stores_bf16_on_cpu = true}),
        options_(options) {
    expect_at_least("slice", "first", options.first, 0);
    expect_at_least("slice", "count", options.count, 1);
    expect_at_least("slice", "step", options.step, 1);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    Shape output = inputs[0];
    const int axis = expect_axis(output, options_.axis);
    const std::int64_t end = options_.first + (options_.count - 1) * options_.step + 1;
    if (end > output[axis])
      throw ShapeError("expected at least " + std::to_string(end) + " entries of axis " +
                       std::to_string(options_.axis) + ", got " + output.to_string());
    output[axis] = options_.count;
    return output;
  }
  bool is_alias(std::span<const Shape> inputs) const override {
    return inputs[0] == output_shape(inputs);
  }

  void forward(const LayerRun& run) const override {
    copy_part<false>(run.kernels, run.inputs[0], part(run), run.output, Write::kOverwrite);
  }
  // The other entries have no gradient from here.
  void backward(const LayerRun& run) const override {
    const TensorView& dx = run.gradients.inputs[0];
    if (!dx) return;
    const Write write = run.gradients.input_writes[0];
    if (write == Write::kOverwrite) ops::zero(run.kernels, dx);
    copy_part<true>(run.kernels, dx, part(run), run.gradients.output, write);
  }

 private:
  Part part(const LayerRun& run) const {
    const std::int64_t rank = run.output.shape.rank();
    return {static_cast<int>(options_.axis < 0 ? options_.axis + rank : options_.axis + 1),
            options_.first, options_.step};
  }

  SliceOptions options_;
};

class Concat final : public Layer {
 public:
  explicit Concat(std::int64_t axis)
      : Layer({.kind = "concat",
               .options = {{"axis", static_cast<double>(axis)}},
               .stores_bf16_on_cpu = true}),
        axis_(axis) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() < 2)
      throw ShapeError("expected two inputs or more, got " + std::to_string(inputs.size()));
    Shape output = inputs[0];
    const int axis = expect_axis(output, axis_);
    output[axis] = 0;
    for (const Shape& input : inputs) {
      bool fits = input.rank() == output.rank();
      for (int d = 0; fits && d < output.rank(); ++d) fits = d == axis || input[d] == output[d];
      if (!fits)
        throw ShapeError("expected inputs that differ only along axis " + std::to_string(axis_) +
                         ", got " + inputs[0].to_string() + " and " + input.to_string());
      output[axis] = checked_add(output[axis], input[axis]);
    }
    return output;
  }

  void forward(const LayerRun& run) const override {
    std::int64_t before = 0;
    for (const TensorView& input : run.inputs) {
      const Part part{axis_of(run), before};
      copy_part<true>(run.kernels, run.output, part, input, Write::kOverwrite);
      before += input.shape[part.axis];
    }
  }
  void backward(const LayerRun& run) const override {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < run.inputs.size(); ++i) {
      const Part part{axis_of(run), before};
      if (run.gradients.inputs[i])
        copy_part<false>(run.kernels, run.gradients.output, part, run.gradients.inputs[i],
                         run.gradients.input_writes[i]);
      before += run.inputs[i].shape[part.axis];
    }
  }

 private:
  int axis_of(const LayerRun& run) const {
    return static_cast<int>(axis_ < 0 ? axis_ + run.output.shape.rank() : axis_ + 1);
  }

  std::int64_t axis_;
};

}  // namespace

LayerPtr reshape(std::vector<std::int64_t> shape) {
  return std::make_unique<Reshape>(std::move(shape));
}
LayerPtr permute(std::vector<std::int64_t> order) {
  return std::make_unique<Permute>(std::move(order));
}
LayerPtr slice(const SliceOptions& options) { return std::make_unique<Slice>(options); }
LayerPtr concat(std::int64_t axis) { return std::make_unique<Concat>(axis); }

}  // namespace engine::layers
