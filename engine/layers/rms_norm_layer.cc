// RMS normalization over the last dimension, or of the heads of queries and keys. It saves the
// inverse root mean square of each row, or head.
#include "engine/ops/rms_norm/rms_norm.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/pool/copy_channels.h"

namespace engine::layers {
namespace {

constexpr const char* kHeadKind = "head_rms_norm";

void expect_eps(const char* kind, double eps) {
  if (!(eps > 0))
    throw ModelError(std::string(kind) + ": eps must be above 0, not " + std::to_string(eps));
}

class RmsNorm final : public Layer {
 public:
  explicit RmsNorm(double eps)
      : Layer({.kind = "rms_norm",
               .options = {{"eps", eps}},
               .backward_needs = {.inputs = true},
               .extends_texts = true}),
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

class HeadRmsNorm final : public Layer {
 public:
  explicit HeadRmsNorm(const HeadNormOptions& options)
      : Layer({.kind = kHeadKind,
               .options = {{"heads", static_cast<double>(options.heads)},
                           {"kv_heads", static_cast<double>(options.kv_heads)},
                           {"eps", options.eps}},
               .backward_needs = {.inputs = true},
               .extends_texts = true}),
        counts_(expect_heads(kHeadKind, options.heads, options.kv_heads)),
        eps_(options.eps) {
    expect_eps(kHeadKind, eps_);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_head_size(inputs[0], counts_);
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const TensorLayout layout = TensorLayout::plain({inputs[0][1] / counts_.all()});
    return {{"q_norm.weight", layout, {Initializer::Kind::kConstant, 1}},
            {"k_norm.weight", layout, {Initializer::Kind::kConstant, 1}}};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape& x = r.inputs[0];
    const std::int64_t heads = counts_.heads + counts_.kv_heads;
    return {.saved = static_cast<std::size_t>(r.batch * x[0] * heads) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::rms_norm_scratch_bytes(x[1] / counts_.all(), r.device)};
  }

  void forward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0];
    for (const bool keys : {false, true})
      ops::rms_norm_forward(run.kernels,
                            {.x = x,
                             .gamma = run.parameters[keys],
                             .eps = eps_,
                             .y = run.output,
                             .inverse_rms = run.training ? saved(run, keys) : TensorView{},
                             .parts = parts(x, keys)});
    copy_values(run, x, run.output, Write::kOverwrite);
  }
  void backward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0], dx = run.gradients.inputs[0];
    for (const bool keys : {false, true})
      ops::rms_norm_backward(run.kernels, {.x = x,
                                           .gamma = run.parameters[keys],
                                           .inverse_rms = saved(run, keys),
                                           .dy = run.gradients.output,
                                           .dgamma = run.gradients.parameters[keys],
                                           .parameter_write = run.gradients.parameter_write,
                                           .dx = dx,
                                           .dx_write = run.gradients.input_writes[0],
                                           .parts = parts(x, keys)});
    if (dx) copy_values(run, run.gradients.output, dx, run.gradients.input_writes[0]);
  }

 private:
  std::int64_t size(const TensorView& x) const { return x.shape[2] / counts_.all(); }
  ops::RmsNormParts parts(const TensorView& x, bool keys) const {
    if (!keys) return {0, counts_.heads};
    return {counts_.heads * size(x), counts_.kv_heads};
  }
  void copy_values(const LayerRun& run, TensorView from, TensorView to, Write write) const {
    const std::int64_t first = (counts_.heads + counts_.kv_heads) * size(from);
    ops::copy_channels(run.kernels,
                       {.before = first, .x = from, .y = to, .from = first, .write = write});
  }
  // The statistics of queries, followed by those of keys.
  TensorView saved(const LayerRun& run, bool keys) const {
    TensorView view = run.inputs[0];
    const std::int64_t rows = view.shape[0] * view.shape[1];
    view.dtype = ops::wide_dtype(view.dtype);
    view.shape = {rows * (keys ? counts_.kv_heads : counts_.heads)};
    view.data = run.saved.data() +
                (keys ? static_cast<std::size_t>(rows * counts_.heads) * size_of(view.dtype) : 0);
    return view;
  }

  HeadCounts counts_;
  double eps_;
};

}  // namespace

LayerPtr rms_norm(double eps) { return std::make_unique<RmsNorm>(eps); }
LayerPtr head_rms_norm(const HeadNormOptions& options) {
  return std::make_unique<HeadRmsNorm>(options);
}

}  // namespace engine::layers
