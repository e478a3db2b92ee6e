// Entries of an axis by their indices: relative positions, shifted windows, reversed orders.
#include <algorithm>

#include "engine/core/checked.h"
#include "engine/layers/general/axis_checks.h"
#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/ops/general/gather.h"

namespace engine::layers {
namespace {

std::vector<LayerOption> options_of(std::int64_t axis, const std::vector<std::int64_t>& indices) {
  std::vector<LayerOption> options = option_list("indices", indices);
  options.push_back({"axis", static_cast<double>(axis)});
  return options;
}

const std::vector<std::int64_t>& expect_indices(const std::vector<std::int64_t>& indices) {
  if (indices.empty()) throw ModelError("gather: indices is empty; expected one or more");
  for (const std::int64_t index : indices) expect_at_least("gather", "an index", index, 0);
  return indices;
}

class Gather final : public Layer {
 public:
  Gather(std::int64_t axis, const std::vector<std::int64_t>& indices)
      : Layer({.kind = "gather", .options = options_of(axis, indices), .stores_bf16_on_cpu = true}),
        axis_(axis),
        chosen_(expect_indices(indices)),
        largest_(std::ranges::max(indices)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    Shape output = inputs[0];
    const int axis = expect_axis(output, axis_);
    if (largest_ >= output[axis])
      throw ShapeError("expected more than " + std::to_string(largest_) + " entries of axis " +
                       std::to_string(axis_) + ", got " + output.to_string());
    output[axis] = std::ssize(chosen_.entries);
    return output;
  }

  void forward(const LayerRun& run) const override {
    ops::gather_forward(
        run.kernels,
        {.axis = axis_of(run.output), .chosen = chosen_, .x = run.inputs[0], .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    if (!run.gradients.inputs[0]) return;
    ops::gather_backward(run.kernels, {.axis = axis_of(run.gradients.output),
                                       .chosen = chosen_,
                                       .dy = run.gradients.output,
                                       .dx = run.gradients.inputs[0],
                                       .write = run.gradients.input_writes[0]});
  }

 private:
  int axis_of(const TensorView& output) const {
    return static_cast<int>(axis_ < 0 ? axis_ + output.shape.rank() : axis_ + 1);
  }

  std::int64_t axis_;
  ops::GatherEntries chosen_;
  std::int64_t largest_;
};

}  // namespace

LayerPtr gather(std::int64_t axis, const std::vector<std::int64_t>& indices) {
  return std::make_unique<Gather>(axis, indices);
}

}  // namespace engine::layers
