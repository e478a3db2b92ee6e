// GELU, exact or with the tanh approximation.
#include "engine/ops/elementwise/gelu.h"

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

class Gelu final : public Layer {
 public:
  explicit Gelu(ops::GeluKind kind)
      : Layer({.kind = "gelu",
               .options = {{"tanh", kind == ops::GeluKind::kTanh ? 1.0 : 0.0}},
               .backward_needs = {.inputs = true},
               .may_run_in_place = true,
               .extends_texts = true}),
        kind_(kind) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    return inputs[0];
  }

  void forward(const LayerRun& run) const override {
    ops::gelu_forward(run.kernels, run.inputs[0], kind_, run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::gelu_backward(run.kernels, run.inputs[0], run.gradients.output, kind_,
                         run.gradients.inputs[0], run.gradients.input_writes[0]);
  }

 private:
  ops::GeluKind kind_;
};

}  // namespace

LayerPtr gelu(ops::GeluKind kind) { return std::make_unique<Gelu>(kind); }

}  // namespace engine::layers
