// Softmax and cross entropy in one node. Forward saves softmax(logits) - target, in place of the
// logits if these are not needed, and backward turns it into their gradient in place. For logits
// that are stored in bf16 on a CPU, the computation is in f32 and its results are rounded.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <string>
#include <vector>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

// A text as an image of height 1 has the labels of the text.
Shape without_ones(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (const std::int64_t extent : shape.dims())
    if (extent != 1) extents.push_back(extent);
  return Shape(std::span<const std::int64_t>(extents));
}

class SoftmaxCrossEntropy final : public Layer {
 public:
  explicit SoftmaxCrossEntropy(double label_smoothing)
      : Layer({.kind = "softmax_cross_entropy",
               .integer_input = 1,
               .stores_bf16_on_cpu = true,
               .may_save_in_place = true}),
        label_smoothing_(label_smoothing) {
    if (!(label_smoothing >= 0 && label_smoothing < 1))
      throw ModelError("softmax_cross_entropy: label smoothing must lie in [0, 1), not " +
                       std::to_string(label_smoothing));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    const Shape& logits = inputs[0];
    if (logits.rank() < 1)
      throw ShapeError("expected logits of shape [classes] or [positions..., classes], got " +
                       logits.to_string());
    const Shape rows(logits.dims().first(static_cast<std::size_t>(logits.rank() - 1)));
    if (!(without_ones(inputs[1]) == without_ones(rows)))
      throw ShapeError("expected labels of shape " + rows.to_string() + " for logits of shape " +
                       logits.to_string() + ", got " + inputs[1].to_string());
    return inputs[1];
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    const auto count = static_cast<std::size_t>(r.inputs[0].count() * r.batch);
    LayerMemory memory{.saved = count * size_of(r.dtype)};
    if (r.device == Device::Kind::kCpu && is_half(r.dtype))  // the loss is computed in f32 there
      memory.scratch = align_up(count * sizeof(float)) + align_up(count * size_of(r.dtype));
    return memory;
  }

  void forward(const LayerRun& run) const override {
    KernelContext context = run.kernels;
    const TensorView given = by_rows(run.inputs[0]), logits = widened(context, given);
    const bool wide = logits.data != given.data;
    const TensorView kept = run.training ? saved(run) : TensorView{};
    ops::softmax_cross_entropy_forward(context,
                                       {.logits = logits,
                                        .labels = by_rows(run.inputs[1], run),
                                        .loss = by_rows(run.output, run),
                                        .gradient = wide && run.training ? logits : kept,
                                        .label_smoothing = run.training ? label_smoothing_ : 0,
                                        .ranks = by_rows(run.ranks, run)});
    if (wide && run.training) ops::cast(context, logits, kept);
  }
  void backward(const LayerRun& run) const override {
    if (!run.gradients.inputs[0]) return;
    KernelContext context = run.kernels;
    const TensorView kept = saved(run), gradient = widened(context, kept);
    const bool wide = gradient.data != kept.data;
    const TensorView dlogits = by_rows(run.gradients.inputs[0]);
    ops::softmax_cross_entropy_backward(
        context, {.gradient = gradient,
                  .dloss = by_rows(run.gradients.output, run),
                  .dlogits = wide ? gradient : dlogits,
                  .write = wide ? Write::kOverwrite : run.gradients.input_writes[0]});
    if (!wide) return;
    if (run.gradients.input_writes[0] == Write::kOverwrite)
      return ops::cast(context, gradient, dlogits);
    const TensorView narrow = take_scratch(context, dlogits.dtype, dlogits.shape);
    ops::cast(context, gradient, narrow);
    ops::copy_or_add(context, narrow, dlogits, Write::kAdd);
  }

 private:
  // For half types on the CPU, returns a copy in f32 in scratch; otherwise returns `given`.
  static TensorView widened(KernelContext& context, const TensorView& given) {
    if (on_cuda(context) || !is_half(given.dtype)) return given;
    const TensorView wide = take_scratch(context, DType::kF32, given.shape);
    ops::cast(context, given, wide);
    return wide;
  }
  static TensorView by_rows(TensorView logits) {
    const std::int64_t classes = logits.shape[logits.shape.rank() - 1];
    logits.shape = {logits.count() / classes, classes};
    return logits;
  }
  static TensorView by_rows(TensorView per_row, const LayerRun& run) {
    per_row.shape = {by_rows(run.inputs[0]).shape[0]};
    return per_row;
  }
  static TensorView saved(const LayerRun& run) {
    TensorView view = by_rows(run.inputs[0]);
    view.data = run.saved.data();
    return view;
  }

  double label_smoothing_;
};

}  // namespace

LayerPtr softmax_cross_entropy(double label_smoothing) {
  return std::make_unique<SoftmaxCrossEntropy>(label_smoothing);
}

}  // namespace engine::layers
