// Layer normalization over the last dimension. It saves the mean and inverse deviation of each row.
#include "engine/ops/norm/layer_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

class LayerNorm final : public Layer {
 public:
  explicit LayerNorm(double eps)
      : Layer({.kind = "layer_norm",
               .options = {{"eps", eps}},
               .backward_needs = {.inputs = true},
               .extends_texts = true}),
        eps_(eps) {
    if (!(eps > 0)) throw ModelError("layer_norm: eps must be above 0, not " + std::to_string(eps));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].rank() < 1)
      throw ShapeError("expected an input of rank 1 or more, got " + inputs[0].to_string());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const TensorLayout layout = TensorLayout::plain({inputs[0].dims().back()});
    return {{"weight", layout, {Initializer::Kind::kConstant, 1}},
            {"bias", layout, {Initializer::Kind::kConstant, 0}}};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const std::int64_t width = r.inputs[0].dims().back();
    return {.saved = static_cast<std::size_t>(2 * r.batch * (r.inputs[0].count() / width)) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::layer_norm_scratch_bytes(width, r.device)};
  }

  void forward(const LayerRun& run) const override {
    ops::layer_norm_forward(run.kernels, {.x = run.inputs[0],
                                          .gamma = run.parameters[0],
                                          .beta = run.parameters[1],
                                          .eps = eps_,
                                          .y = run.output,
                                          .statistics = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0], dy = run.gradients.output, statistics = saved(run);
    if (run.gradients.inputs[0])
      ops::layer_norm_backward(run.kernels, {.x = x,
                                             .gamma = run.parameters[0],
                                             .statistics = statistics,
                                             .dy = dy,
                                             .dgamma = run.gradients.parameters[0],
                                             .dbeta = run.gradients.parameters[1],
                                             .parameter_write = run.gradients.parameter_write,
                                             .dx = run.gradients.inputs[0],
                                             .dx_write = run.gradients.input_writes[0]});
    else
      ops::layer_norm_backward_parameters(run.kernels, {.x = x,
                                                        .statistics = statistics,
                                                        .dy = dy,
                                                        .dgamma = run.gradients.parameters[0],
                                                        .dbeta = run.gradients.parameters[1],
                                                        .write = run.gradients.parameter_write});
  }

 private:
  static TensorView saved(const LayerRun& run) {
    TensorView view = run.inputs[0];
    view.shape = {2, view.count() / view.shape.dims().back()};
    view.dtype = ops::wide_dtype(view.dtype);
    view.data = run.saved.data();
    return view;
  }

  double eps_;
};

}  // namespace

LayerPtr layer_norm(double eps) { return std::make_unique<LayerNorm>(eps); }

}  // namespace engine::layers
