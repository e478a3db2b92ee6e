// Concatenates the channels of several tensors. Backward copies each part of the gradient.
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/copy_channels.h"
#include "engine/ops/pool/pad_channels.h"

namespace engine::layers {
namespace {

class Concat final : public Layer {
 public:
  Concat() : Layer({.kind = "concat"}) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() < 2)
      throw ShapeError("expected two inputs or more, got " + std::to_string(inputs.size()));
    const Shape& first = inputs[0];
    if (first.rank() != 3 && first.rank() != 1)
      throw ShapeError("expected inputs of shape [h, w, c] or [c], got " + first.to_string());
    const int last = first.rank() - 1;
    std::int64_t channels = 0;
    for (const Shape& input : inputs) {
      bool fits = input.rank() == first.rank();
      for (int i = 0; fits && i < last; ++i) fits = input[i] == first[i];
      if (!fits)
        throw ShapeError("expected inputs that differ in their channels alone, got " +
                         first.to_string() + " and " + input.to_string());
      channels = checked_add(channels, input[last]);
    }
    return last == 0 ? Shape{channels} : Shape{first[0], first[1], channels};
  }

  void forward(const LayerRun& run) const override {
    std::int64_t before = 0;
    for (const TensorView& input : run.inputs) {
      ops::copy_channels(run.kernels, {.before = before, .x = input, .y = run.output});
      before += input.shape.dims().back();
    }
  }
  void backward(const LayerRun& run) const override {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < run.inputs.size(); ++i) {
      if (run.gradients.inputs[i])
        ops::pad_channels_backward(run.kernels, {.before = before,
                                                 .dy = run.gradients.output,
                                                 .dx = run.gradients.inputs[i],
                                                 .write = run.gradients.input_writes[i]});
      before += run.inputs[i].shape.dims().back();
    }
  }
};

}  // namespace

LayerPtr concat() { return std::make_unique<Concat>(); }

}  // namespace engine::layers
