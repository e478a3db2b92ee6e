// Functions of single elements besides ReLU and GELU.
#include <cmath>
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

class ActivationLayer final : public Layer {
 public:
  ActivationLayer(const char* kind, const ops::Activation& function)
      : Layer({.kind = kind,
               .options = {{"function", static_cast<double>(function.kind)},
                           {"first", function.first},
                           {"second", function.second}},
               .backward_needs = {.inputs = !ops::uses_output(function.kind),
                                  .output = ops::uses_output(function.kind)},
               .stores_bf16_on_cpu = true,
               .may_run_in_place = true,
               .extends_texts = true}),
        function_(function) {}

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
  const auto [kind, first, second] = function;
  if (kind == ops::ActivationKind::kLeakyRelu && !(first >= 0 && std::isfinite(first)))
    throw ModelError("activation: slope must be at least 0, not " + std::to_string(first));
  if (kind == ops::ActivationKind::kClip && !(first <= second))
    throw ModelError("activation: low must be at most high, not " + std::to_string(first) +
                     " and " + std::to_string(second));
  if (kind == ops::ActivationKind::kPower && !std::isfinite(first))
    throw ModelError("activation: exponent must be finite, not " + std::to_string(first));
  return std::make_unique<ActivationLayer>("activation", function);
}

LayerPtr scale_shift(double scale, double shift) {
  if (!std::isfinite(scale) || !std::isfinite(shift))
    throw ModelError("scale_shift: scale and shift must be finite, not " + std::to_string(scale) +
                     " and " + std::to_string(shift));
  return std::make_unique<ActivationLayer>(
      "scale_shift", ops::Activation{ops::ActivationKind::kScaleShift, scale, shift});
}

}  // namespace engine::layers
