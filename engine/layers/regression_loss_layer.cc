// The loss of regression targets in one node. It saves its gradient in the forward pass.
#include "engine/ops/loss/regression_loss.h"

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::layers {
namespace {

std::string_view kind_of(ops::RegressionLoss loss) {
  switch (loss) {
    case ops::RegressionLoss::kSquared:
      return "mse_loss";
    case ops::RegressionLoss::kAbsolute:
      return "mae_loss";
    case ops::RegressionLoss::kHuber:
      return "huber_loss";
    case ops::RegressionLoss::kLogistic:
      return "bce_with_logits_loss";
  }
  return "";
}

class RegressionLossLayer final : public Layer {
 public:
  explicit RegressionLossLayer(ops::RegressionLoss kind)
      : Layer({.kind = kind_of(kind)}), kind_(kind) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    if (inputs[0].rank() != 1)
      throw ShapeError("expected predictions of shape [targets], got " + inputs[0].to_string());
    if (!(inputs[1] == inputs[0]))
      throw ShapeError("expected targets of shape " + inputs[0].to_string() +
                       ", as the predictions, got " + inputs[1].to_string());
    return {};
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    return {.saved = static_cast<std::size_t>(r.inputs[0].count() * r.batch) * size_of(r.dtype)};
  }

  void forward(const LayerRun& run) const override {
    ops::regression_loss_forward(run.kernels, {.prediction = run.inputs[0],
                                               .target = run.inputs[1],
                                               .loss = run.output,
                                               .gradient = run.training ? saved(run) : TensorView{},
                                               .kind = kind_});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::softmax_cross_entropy_backward(run.kernels, {.gradient = saved(run),
                                                        .dloss = run.gradients.output,
                                                        .dlogits = run.gradients.inputs[0],
                                                        .write = run.gradients.input_writes[0]});
  }

 private:
  static TensorView saved(const LayerRun& run) {
    TensorView view = run.inputs[0];
    view.data = run.saved.data();
    return view;
  }

  ops::RegressionLoss kind_;
};

}  // namespace

LayerPtr regression_loss(ops::RegressionLoss kind) {
  return std::make_unique<RegressionLossLayer>(kind);
}

}  // namespace engine::layers
