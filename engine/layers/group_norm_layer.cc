// Group normalization of images. It saves the mean and inverse deviation of each group of each
// sample.
#include "engine/ops/norm/group_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise.h"

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
    if (!options_.affine) return {};
    return norm_parameters(inputs[0][2]);
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    return {.saved = static_cast<std::size_t>(2 * r.batch * options_.groups) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch =
                ops::group_norm_scratch_bytes(r.inputs[0].with_batch(r.batch), r.dtype, r.device) +
                (options_.affine ? 0 : 3 * align_up(vector_bytes(r.inputs[0][2], r.dtype)))};
  }

  void forward(const LayerRun& run) const override {
    KernelContext kernels = run.kernels;
    const TensorView gamma = options_.affine ? run.parameters[0] : filled(kernels, run, 1),
                     beta = options_.affine ? run.parameters[1] : filled(kernels, run, 0);
    ops::group_norm_forward(kernels, {.x = run.inputs[0],
                                      .gamma = gamma,
                                      .beta = beta,
                                      .groups = options_.groups,
                                      .eps = options_.eps,
                                      .y = run.output,
                                      .statistics = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (!options_.affine && !run.gradients.inputs[0]) return;
    KernelContext kernels = run.kernels;
    const bool affine = options_.affine;
    const TensorView gamma = affine ? run.parameters[0] : filled(kernels, run, 1),
                     dgamma = affine ? run.gradients.parameters[0] : vector(kernels, run),
                     dbeta = affine ? run.gradients.parameters[1] : vector(kernels, run);
    ops::group_norm_backward(
        kernels, {.x = run.inputs[0],
                  .gamma = gamma,
                  .statistics = saved(run),
                  .dy = run.gradients.output,
                  .dgamma = dgamma,
                  .dbeta = dbeta,
                  .parameter_write = affine ? run.gradients.parameter_write : Write::kOverwrite,
                  .dx = run.gradients.inputs[0],
                  .dx_write = run.gradients.input_writes[0]});
  }

 private:
  static std::size_t vector_bytes(std::int64_t channels, DType dtype) {
    return static_cast<std::size_t>(channels) * size_of(ops::wide_dtype(dtype));
  }
  // A vector in the place of a parameter or its gradient, from the front of the scratch.
  static TensorView vector(KernelContext& kernels, const LayerRun& run) {
    const TensorView& x = run.inputs[0];
    return take_scratch(kernels, ops::wide_dtype(x.dtype), {x.shape.dims().back()});
  }
  static TensorView filled(KernelContext& kernels, const LayerRun& run, double value) {
    const TensorView all = vector(kernels, run);
    ops::fill(kernels, value, all);
    return all;
  }
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
