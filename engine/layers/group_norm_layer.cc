// Group normalisation of images. Saves mean and inverse deviation of each group of each sample.
#include "engine/ops/norm/group_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

class GroupNorm final : public Layer {
 public:
  explicit GroupNorm(const GroupNormOptions& options) : options_(options) {
    expect_at_least("group_norm", "groups", options.groups, 1);
    if (!(options.eps > 0))
      throw ModelError("group_norm: eps must be above 0, not " + std::to_string(options.eps));
  }
  std::string_view kind() const override { return "group_norm"; }
  std::vector<LayerOption> options() const override {
    return {{"groups", static_cast<double>(options_.groups)}, {"eps", options_.eps}};
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    if (inputs[0][2] % options_.groups != 0)
      throw ShapeError("expected channels that " + std::to_string(options_.groups) +
                       " groups divide, got " + inputs[0].to_string());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const TensorLayout layout = TensorLayout::plain({inputs[0][2]});
    return {{"weight", layout, {Initializer::Kind::kConstant, 1}},
            {"bias", layout, {Initializer::Kind::kConstant, 0}}};
  }
  std::size_t saved_bytes(std::span<const Shape>, std::int64_t batch, DType dtype) const override {
    return static_cast<std::size_t>(2 * batch * options_.groups) * size_of(ops::wide_dtype(dtype));
  }
  std::size_t scratch_bytes(std::span<const Shape> inputs, std::int64_t batch, DType dtype, int,
                            Device::Kind device, Products) const override {
    return ops::group_norm_scratch_bytes(inputs[0].with_batch(batch), dtype, device);
  }
  BackwardNeeds backward_needs() const override { return {.inputs = true}; }

  void forward(const LayerRun& run) const override {
    ops::group_norm_forward(run.kernels, {.x = run.inputs[0],
                                          .gamma = run.parameters[0],
                                          .beta = run.parameters[1],
                                          .groups = options_.groups,
                                          .eps = options_.eps,
                                          .y = run.output,
                                          .statistics = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    ops::group_norm_backward(run.kernels, {.x = run.inputs[0],
                                           .gamma = run.parameters[0],
                                           .statistics = saved(run),
                                           .dy = run.output_gradient,
                                           .dgamma = run.parameter_gradients[0],
                                           .dbeta = run.parameter_gradients[1],
                                           .parameter_write = run.parameter_write,
                                           .dx = run.input_gradients[0],
                                           .dx_write = run.input_writes[0]});
  }

 private:
  TensorView saved(const LayerRun& run) const {
    const TensorView& x = run.inputs[0];
    return {run.saved.data(), ops::wide_dtype(x.dtype), {2, x.shape[0], options_.groups}, x.device};
  }

  GroupNormOptions options_;
};

}  // namespace

LayerPtr group_norm(const GroupNormOptions& options) {
  return std::make_unique<GroupNorm>(options);
}

}  // namespace engine::layers
