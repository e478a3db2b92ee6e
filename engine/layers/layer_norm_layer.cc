// Layer normalization over the last dimension. It saves the mean and inverse deviation of each row.
#include "engine/ops/norm/layer_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

class LayerNorm final : public Layer {
 public:
  LayerNorm(double eps, bool affine)
      : Layer({.kind = "layer_norm",
               .options = {{"eps", eps}},
               .backward_needs = {.inputs = true},
               .extends_texts = true}),
        eps_(eps),
        affine_(affine) {
    if (!(eps > 0)) throw ModelError("layer_norm: eps must be above 0, not " + std::to_string(eps));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].rank() < 1)
      throw ShapeError("expected an input of rank 1 or more, got " + inputs[0].to_string());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    if (!affine_) return {};
    return norm_parameters(inputs[0].dims().back());
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const std::int64_t width = r.inputs[0].dims().back();
    return {.saved = static_cast<std::size_t>(2 * r.batch * (r.inputs[0].count() / width)) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::layer_norm_scratch_bytes(width, r.device) +
                       (affine_ ? 0 : 2 * align_up(bytes_of(width, r.dtype)))};
  }

  void forward(const LayerRun& run) const override {
    KernelContext kernels = run.kernels;
    const TensorView gamma = affine_ ? run.parameters[0] : constant(kernels, run, 1),
                     beta = affine_ ? run.parameters[1] : constant(kernels, run, 0);
    ops::layer_norm_forward(kernels, {.x = run.inputs[0],
                                      .gamma = gamma,
                                      .beta = beta,
                                      .eps = eps_,
                                      .y = run.output,
                                      .statistics = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (affine_)
      backward_affine(run);
    else if (run.gradients.inputs[0])
      backward_data(run);
  }

 private:
  static std::size_t bytes_of(std::int64_t width, DType dtype) {
    return static_cast<std::size_t>(width) * size_of(ops::wide_dtype(dtype));
  }
  // A vector in the place of a parameter, from the front of the scratch.
  static TensorView constant(KernelContext& kernels, const LayerRun& run, double value) {
    const TensorView& x = run.inputs[0];
    const TensorView vector =
        take_scratch(kernels, ops::wide_dtype(x.dtype), {x.shape.dims().back()});
    ops::fill(kernels, value, vector);
    return vector;
  }
  static void backward_data(const LayerRun& run) {
    KernelContext kernels = run.kernels;
    const TensorView gamma = constant(kernels, run, 1);
    ops::layer_norm_backward_data(kernels, {.x = run.inputs[0],
                                            .gamma = gamma,
                                            .statistics = saved(run),
                                            .dy = run.gradients.output,
                                            .dx = run.gradients.inputs[0],
                                            .write = run.gradients.input_writes[0]});
  }
  static void backward_affine(const LayerRun& run) {
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
  static TensorView saved(const LayerRun& run) {
    TensorView view = run.inputs[0];
    view.shape = {2, view.count() / view.shape.dims().back()};
    view.dtype = ops::wide_dtype(view.dtype);
    view.data = run.saved.data();
    return view;
  }

  double eps_;
  bool affine_;
};

}  // namespace

LayerPtr layer_norm(double eps, bool affine) { return std::make_unique<LayerNorm>(eps, affine); }

}  // namespace engine::layers
