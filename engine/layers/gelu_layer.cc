// gelu, exact or by tanh.
#include "engine/ops/elementwise/gelu.h"

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

class Gelu final : public Layer {
 public:
  explicit Gelu(ops::GeluKind kind) : kind_(kind) {}
  std::string_view kind() const override { return "gelu"; }
  std::vector<LayerOption> options() const override {
    return {{"tanh", kind_ == ops::GeluKind::kTanh ? 1.0 : 0.0}};
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    return inputs[0];
  }
  BackwardNeeds backward_needs() const override { return {.inputs = true}; }
  bool may_run_in_place() const override { return true; }

  void forward(const LayerRun& run) const override {
    ops::gelu_forward(run.kernels, run.inputs[0], kind_, run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.input_gradients[0])
      ops::gelu_backward(run.kernels, run.inputs[0], run.output_gradient, kind_,
                         run.input_gradients[0], run.input_writes[0]);
  }

 private:
  ops::GeluKind kind_;
};

}  // namespace

LayerPtr gelu(ops::GeluKind kind) { return std::make_unique<Gelu>(kind); }

}  // namespace engine::layers
