// Convolution by a weight that other layers compute: each sample has its own, [out, kernel height,
// kernel width, in / groups].
#include <algorithm>
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "engine/layers/spatial/window_checks.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

// The view of one sample without the batch.
TensorView item_of(const TensorView& batch, std::int64_t sample) {
  TensorView item = sample_of(batch, static_cast<std::size_t>(sample));
  const auto dims = batch.shape.dims();
  item.shape = Shape(std::span<const std::int64_t>(dims.begin() + 1, dims.end()));
  return item;
}

class Convolve final : public Layer {
 public:
  explicit Convolve(const ConvolveOptions& options)
      : Layer({.kind = "convolve",
               .options = window_option_list(windows(options, 1, 1)),
               .backward_needs = {.inputs = true}}),
        options_(options) {
    expect_window_options("convolve", windows(options, 1, 1), options.groups);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    const Shape &image = inputs[0], &weight = inputs[1];
    expect_rank(image, 3, "[h, w, c]");
    if (weight.rank() != 4 || weight[3] * options_.groups != image[2] ||
        weight[0] % options_.groups != 0)
      throw ShapeError("expected a weight [outputs, height, width, " + std::to_string(image[2]) +
                       " / " + std::to_string(options_.groups) +
                       "] as the second input, its outputs a multiple of " +
                       std::to_string(options_.groups) + ", got " + weight.to_string());
    expect_windows(image, windows(options_, weight[1], weight[2]));
    const ops::WindowConv2d c = conv(image, weight);
    return {c.window.rows.count(), c.window.columns.count(), weight[0]};
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    const std::size_t weights = static_cast<std::size_t>(r.inputs[1].count());
    return {.scratch = align_up(weights * size_of(ops::wide_dtype(r.dtype))) +
                       align_up(weights * size_of(r.dtype)) +
                       ops::window_conv2d_scratch_bytes(conv(r.inputs[0], r.inputs[1]), 1, r.dtype,
                                                        r.threads, r.device, r.products)};
  }

  void forward(const LayerRun& run) const override {
    for (std::int64_t i = 0; i < run.output.shape[0]; ++i) {
      const TensorView weight = item_of(run.inputs[1], i);
      const auto sample = static_cast<std::size_t>(i);
      ops::window_conv2d_forward(run.kernels, {.conv = conv_of(run, weight),
                                               .x = sample_of(run.inputs[0], sample),
                                               .weight = weight,
                                               .y = sample_of(run.output, sample)});
    }
  }

  void backward(const LayerRun& run) const override {
    const LayerGradients& g = run.gradients;
    for (std::int64_t i = 0; i < g.output.shape[0]; ++i) {
      const TensorView weight = item_of(run.inputs[1], i);
      const auto sample = static_cast<std::size_t>(i);
      const TensorView dy = sample_of(g.output, sample);
      if (g.inputs[0])
        ops::window_conv2d_backward_data(run.kernels, {.conv = conv_of(run, weight),
                                                       .dy = dy,
                                                       .weight = weight,
                                                       .dx = sample_of(g.inputs[0], sample),
                                                       .write = g.input_writes[0]});
      // After that of the image: the weight may be a view of it, whose gradient is added to it.
      if (g.inputs[1]) add_weight_gradient(run, dy, i);
    }
  }

 private:
  static WindowOptions windows(const ConvolveOptions& o, std::int64_t height, std::int64_t width) {
    return {{height, width}, o.stride, o.dilation, o.padding, o.groups};
  }
  ops::WindowConv2d conv(const Shape& image, const Shape& weight) const {
    return {window_geometry(image, windows(options_, weight[1], weight[2])), weight[0],
            options_.groups};
  }
  ops::WindowConv2d conv_of(const LayerRun& run, const TensorView& weight) const {
    const Shape& x = run.inputs[0].shape;
    return conv({x[1], x[2], x[3]}, weight.shape);
  }

  // The kernels write gradients of weights in at least f32.
  void add_weight_gradient(const LayerRun& run, const TensorView& dy, std::int64_t sample) const {
    const TensorView to = item_of(run.gradients.inputs[1], sample);
    const Write write = run.gradients.input_writes[1];
    const DType wide = ops::wide_dtype(to.dtype);
    KernelContext context = run.kernels;
    const TensorView sum = wide == to.dtype ? to : take_scratch(context, wide, to.shape);
    ops::window_conv2d_backward_weights(
        context, {.conv = conv_of(run, to),
                  .x = sample_of(run.inputs[0], static_cast<std::size_t>(sample)),
                  .dy = dy,
                  .dweight = sum,
                  .write = wide == to.dtype ? write : Write::kOverwrite});
    if (wide == to.dtype) return;
    const TensorView narrow =
        write == Write::kOverwrite ? to : take_scratch(context, to.dtype, to.shape);
    ops::cast(context, sum, narrow);
    if (write != Write::kOverwrite) ops::copy_or_add(context, narrow, to, write);
  }

  ConvolveOptions options_;
};

}  // namespace

LayerPtr convolve(const ConvolveOptions& options) { return std::make_unique<Convolve>(options); }

}  // namespace engine::layers
