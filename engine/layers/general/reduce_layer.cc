// Means, sums and maxima over axes.
#include <algorithm>
#include <array>

#include "engine/layers/general/axis_checks.h"
#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/ops/general/reduce_max.h"
#include "engine/ops/general/strided_copy.h"
#include "engine/ops/general/strided_sum.h"

namespace engine::layers {
namespace {

LayerTraits traits_of(const ReduceOptions& options) {
  std::vector<LayerOption> listed = option_list("axes", options.axes);
  listed.push_back({"function", static_cast<double>(options.function)});
  return {.kind = "reduce",
          .options = std::move(listed),
          .backward_needs = {.inputs = options.function == ReduceFunction::kMax},
          .stores_bf16_on_cpu = true};
}

class Reduce final : public Layer {
 public:
  explicit Reduce(ReduceOptions options) : Layer(traits_of(options)), options_(std::move(options)) {
    if (options_.axes.empty()) throw ModelError("reduce: axes has no axis; expected one or more");
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& input = inputs[0];
    std::array<bool, Shape::kMaxRank> reduced{};
    for (const std::int64_t axis : options_.axes) {
      bool& chosen = reduced[static_cast<std::size_t>(expect_axis(input, axis))];
      if (chosen)
        throw ShapeError("expected different axes of " + input.to_string() + ", got axis " +
                         std::to_string(axis) + " twice");
      chosen = true;
    }
    std::vector<std::int64_t> extents;
    for (int d = 0; d < input.rank(); ++d)
      if (!reduced[static_cast<std::size_t>(d)])
        extents.push_back(input[d]);
      else if (options_.keep)
        extents.push_back(1);
    return Shape(std::span<const std::int64_t>(extents));
  }

  void forward(const LayerRun& run) const override {
    const TensorView& x = run.inputs[0];
    if (options_.function == ReduceFunction::kMax) {
      const Parts<2> parts = parts_of<2>(x.shape, {0, 1});
      return ops::reduce_max_forward(
          run.kernels, {.x = x, .y = run.output, .kept = parts.kept, .reduced = parts.reduced});
    }
    const Parts<4> parts = parts_of<4>(x.shape, {0, 3});
    ops::strided_sum(run.kernels, {.u = x,
                                   .y = run.output,
                                   .kept = parts.kept,
                                   .summed = parts.reduced,
                                   .scale = scale(parts.reduced.elements())});
  }
  void backward(const LayerRun& run) const override {
    const TensorView &x = run.inputs[0], &dx = run.gradients.inputs[0];
    const Write write = run.gradients.input_writes[0];
    if (!dx) return;
    if (options_.function == ReduceFunction::kMax) {
      const Parts<2> parts = parts_of<2>(dx.shape, {0, 1});
      return ops::reduce_max_backward(run.kernels, {.x = x,
                                                    .dy = run.gradients.output,
                                                    .dx = dx,
                                                    .kept = parts.kept,
                                                    .reduced = parts.reduced,
                                                    .write = write});
    }
    const Parts<2> parts = parts_of<2>(dx.shape, {1, 0});
    ops::Axes<2> all = parts.kept;
    for (int d = 0; d < parts.reduced.count; ++d)
      all.add(parts.reduced.at[static_cast<std::size_t>(d)]);
    ops::strided_copy(run.kernels, {.x = run.gradients.output,
                                    .y = dx,
                                    .axes = all,
                                    .scale = scale(parts.reduced.elements()),
                                    .write = write});
  }

 private:
  template <int kOperands>
  struct Parts {
    ops::Axes<kOperands> kept, reduced;
  };
  // Which operands of a kernel are the layer's input and output.
  struct Places {
    std::size_t input, output;
  };

  // The axes of an input [batch, item...].
  template <int kOperands>
  Parts<kOperands> parts_of(const Shape& input, const Places& places) const {
    const int rank = input.rank() - 1;
    const auto is_reduced = [&](int d) {
      return d > 0 && std::ranges::any_of(options_.axes, [&](std::int64_t axis) {
               return (axis < 0 ? axis + rank : axis) == d - 1;
             });
    };
    const auto steps = ops::dense_steps(input);
    std::array<std::int64_t, Shape::kMaxRank> output_steps{};
    std::int64_t step = 1;
    for (int d = rank; d >= 0; --d) {
      if (is_reduced(d)) continue;
      output_steps[static_cast<std::size_t>(d)] = step;
      step *= input[d];
    }
    Parts<kOperands> parts;
    for (int d = 0; d <= rank; ++d) {
      ops::Axis<kOperands> axis{.count = input[d]};
      axis.steps[places.input] = steps[static_cast<std::size_t>(d)];
      axis.steps[places.output] = output_steps[static_cast<std::size_t>(d)];
      (is_reduced(d) ? parts.reduced : parts.kept).add(axis);
    }
    return parts;
  }

  double scale(std::int64_t elements) const {
    return options_.function == ReduceFunction::kMean ? 1 / static_cast<double>(elements) : 1;
  }

  ReduceOptions options_;
};

}  // namespace

LayerPtr reduce(const ReduceOptions& options) { return std::make_unique<Reduce>(options); }

}  // namespace engine::layers
