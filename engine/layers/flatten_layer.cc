// Flattens an image to a vector in PyTorch's channel-first order, so that the weights of the next
// dense layer can be exchanged with PyTorch in both directions.
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

class Flatten final : public Layer {
 public:
  Flatten() : Layer({.kind = "flatten", .stores_bf16_on_cpu = true}) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].rank() != 1) expect_rank(inputs[0], 3, "[h, w, c]");
    return {inputs[0].count()};
  }
  bool is_alias(std::span<const Shape> inputs) const override {
    const Shape& s = inputs[0];
    return s.rank() == 1 || s[2] == 1 || s[0] * s[1] == 1;
  }

  void forward(const LayerRun& run) const override {
    ops::nhwc_to_channel_first(run.kernels, run.inputs[0], run.output, Write::kOverwrite);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::channel_first_to_nhwc(run.kernels, run.gradients.output, run.gradients.inputs[0],
                                 run.gradients.input_writes[0]);
  }
};

}  // namespace

LayerPtr flatten() { return std::make_unique<Flatten>(); }

}  // namespace engine::layers
