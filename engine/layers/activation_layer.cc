// Activation functions besides ReLU and GELU.
#include <cmath>
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(const ops::Activation& function)
      : Layer({.kind = "activation",
               .options = {{"function", static_cast<double>(function.kind)},
                           {"slope", function.slope}},
               .backward_needs = {.inputs = !ops::uses_output(function.kind),
                                  .output = ops::uses_output(function.kind)},
               .stores_bf16_on_cpu = true,
               .may_run_in_place = true,
               .extends_texts = true}),
        function_(function) {
    if (!(function.slope >= 0 && std::isfinite(function.slope)))
      throw ModelError("activation: slope must be at least 0, not " +
                       std::to_string(function.slope));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    return inputs[0];
  }

  void forward(const LayerRun& run) const override {
    ops::activation_forward(run.kernels, run.inputs[0], function_, run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::activation_backward(
          run.kernels, ops::uses_output(function_.kind) ? run.output : run.inputs[0],
          run.gradients.output, function_, run.gradients.inputs[0], run.gradients.input_writes[0]);
  }

 private:
  ops::Activation function_;
};

}  // namespace

LayerPtr activation(const ops::Activation& function) {
  return std::make_unique<ActivationLayer>(function);
}

}  // namespace engine::layers
