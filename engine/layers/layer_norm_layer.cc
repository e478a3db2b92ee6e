// Layer normalisation over the last dimension. Saves mean and inverse deviation of each row.
#include "engine/ops/norm/layer_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

class LayerNorm final : public Layer {
 public:
  explicit LayerNorm(double eps) : eps_(eps) {
    if (!(eps > 0)) throw ModelError("layer_norm: eps must be above 0, not " + std::to_string(eps));
  }
  std::string_view kind() const override { return "layer_norm"; }
  std::vector<LayerOption> options() const override { return {{"eps", eps_}}; }

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
  std::size_t saved_bytes(std::span<const Shape> inputs, std::int64_t batch,
                          DType dtype) const override {
    return static_cast<std::size_t>(2 * batch * (inputs[0].count() / inputs[0].dims().back())) *
           size_of(ops::wide_dtype(dtype));
  }
  std::size_t scratch_bytes(std::span<const Shape> inputs, std::int64_t, DType, int,
                            Device::Kind device, Products) const override {
    return ops::layer_norm_scratch_bytes(inputs[0].dims().back(), device);
  }
  BackwardNeeds backward_needs() const override { return {.inputs = true}; }

  void forward(const LayerRun& run) const override {
    ops::layer_norm_forward(run.kernels, {.x = run.inputs[0],
                                          .gamma = run.parameters[0],
                                          .beta = run.parameters[1],
                                          .eps = eps_,
                                          .y = run.output,
                                          .statistics = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0], dy = run.output_gradient, statistics = saved(run);
    if (run.input_gradients[0])
      ops::layer_norm_backward(run.kernels, {.x = x,
                                             .gamma = run.parameters[0],
                                             .statistics = statistics,
                                             .dy = dy,
                                             .dgamma = run.parameter_gradients[0],
                                             .dbeta = run.parameter_gradients[1],
                                             .parameter_write = run.parameter_write,
                                             .dx = run.input_gradients[0],
                                             .dx_write = run.input_writes[0]});
    else
      ops::layer_norm_backward_parameters(run.kernels, {.x = x,
                                                        .statistics = statistics,
                                                        .dy = dy,
                                                        .dgamma = run.parameter_gradients[0],
                                                        .dbeta = run.parameter_gradients[1],
                                                        .write = run.parameter_write});
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
