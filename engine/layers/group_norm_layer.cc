// Group normalization of images. It saves the mean and inverse deviation of each group of each
// sample.
#include "engine/ops/norm/group_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

class GroupNorm final : public Layer {
 public:
  explicit GroupNorm(const GroupNormOptions& options)
      : Layer({.kind = "group_norm",
               .options = {{"groups", static_cast<double>(options.groups)}, {"eps", options.eps}},
               .backward_needs = {.inputs = true}}),
        options_(options) {
    expect_at_least("group_norm", "groups", options.groups, 1);
    if (!(options.eps > 0))
      throw ModelError("group_norm: eps must be above 0, not " + std::to_string(options.eps));
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
  LayerMemory memory(const MemoryRequest& r) const override {
    return {.saved = static_cast<std::size_t>(2 * r.batch * options_.groups) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch =
                ops::group_norm_scratch_bytes(r.inputs[0].with_batch(r.batch), r.dtype, r.device)};
  }

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
                                           .dy = run.gradients.output,
                                           .dgamma = run.gradients.parameters[0],
                                           .dbeta = run.gradients.parameters[1],
                                           .parameter_write = run.gradients.parameter_write,
                                           .dx = run.gradients.inputs[0],
                                           .dx_write = run.gradients.input_writes[0]});
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
