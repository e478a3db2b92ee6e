// RMS normalization over the last dimension. It saves the inverse root mean square of each row.
#include "engine/ops/norm/rms_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

void expect_eps(const char* kind, double eps) {
  if (!(eps > 0))
    throw ModelError(std::string(kind) + ": eps must be above 0, not " + std::to_string(eps));
}

class RmsNorm final : public Layer {
 public:
  explicit RmsNorm(double eps)
      : Layer({.kind = "rms_norm", .options = {{"eps", eps}}, .backward_needs = {.inputs = true}}),
        eps_(eps) {
    expect_eps("rms_norm", eps);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].rank() < 1)
      throw ShapeError("expected an input of rank 1 or more, got " + inputs[0].to_string());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"weight",
             TensorLayout::plain({inputs[0].dims().back()}),
             {Initializer::Kind::kConstant, 1}}};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const std::int64_t width = r.inputs[0].dims().back();
    return {.saved = static_cast<std::size_t>(r.batch * (r.inputs[0].count() / width)) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::rms_norm_scratch_bytes(width, r.device)};
  }

  void forward(const LayerRun& run) const override {
    ops::rms_norm_forward(run.kernels, {.x = run.inputs[0],
                                        .gamma = run.parameters[0],
                                        .eps = eps_,
                                        .y = run.output,
                                        .inverse_rms = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    ops::rms_norm_backward(run.kernels, {.x = run.inputs[0],
                                         .gamma = run.parameters[0],
                                         .inverse_rms = saved(run),
                                         .dy = run.gradients.output,
                                         .dgamma = run.gradients.parameters[0],
                                         .parameter_write = run.gradients.parameter_write,
                                         .dx = run.gradients.inputs[0],
                                         .dx_write = run.gradients.input_writes[0]});
  }

 private:
  static TensorView saved(const LayerRun& run) {
    TensorView view = run.inputs[0];
    view.shape = {view.count() / view.shape.dims().back()};
    view.dtype = ops::wide_dtype(view.dtype);
    view.data = run.saved.data();
    return view;
  }

  double eps_;
};

}  // namespace

LayerPtr rms_norm(double eps) { return std::make_unique<RmsNorm>(eps); }

}  // namespace engine::layers
