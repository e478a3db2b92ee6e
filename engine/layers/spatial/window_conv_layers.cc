// Convolutions of any window, and transposed convolutions. The weight is [out, in / groups, kh, kw]
// in files and [out, kh, kw, in / groups] in memory; of transposed ones [in, out / groups, kh, kw]
// and [in, kh, kw, out / groups].
#include <cmath>
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "engine/layers/spatial/window_checks.h"
#include "engine/ops/general/strided_sum.h"
#include "engine/ops/windows/pixel_vectors.h"

namespace engine::layers {
namespace {

WindowOptions windows_of(const Conv2dOptions& o) {
  return {o.kernel, o.stride, o.dilation, o.padding, o.groups};
}

Shape image_of(const TensorView& batch) { return {batch.shape[1], batch.shape[2], batch.shape[3]}; }

class WindowConv2d final : public Layer {
 public:
  explicit WindowConv2d(const Conv2dOptions& options)
      : Layer({.kind = "conv2d",
               .options = window_option_list(windows_of(options)),
               .backward_needs = {.inputs = true},
               .stores_bf16_on_cpu = true}),
        options_(options),
        windows_(windows_of(options)) {
    expect_window_options("conv2d", windows_, options.out_channels);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_windows(inputs[0], windows_);
    const ops::WindowGeometry g = window_geometry(inputs[0], windows_);
    return {g.rows.count(), g.columns.count(), options_.out_channels};
  }

  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    std::vector<ParameterSpec> specs =
        window_parameters({options_.out_channels, inputs[0][2] / options_.groups, options_.kernel,
                           options_.bias ? options_.out_channels : 0});
    if (options_.init == ConvInit::kNormalFanOut) {
      const auto weights = static_cast<double>(specs[0].layout.file_shape.count()),
                 ins = static_cast<double>(specs[0].layout.file_shape[1]);
      specs[0].initializer = {Initializer::Kind::kNormal, std::sqrt(2 / (weights / ins))};
    }
    return specs;
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    return {.scratch = ops::window_conv2d_scratch_bytes(conv(r.inputs[0]), r.batch, r.dtype,
                                                        r.threads, r.device, r.products)};
  }

  void forward(const LayerRun& run) const override {
    ops::window_conv2d_forward(run.kernels,
                               {.conv = conv(image_of(run.inputs[0])),
                                .x = run.inputs[0],
                                .weight = run.parameters[0],
                                .y = run.output,
                                .bias = options_.bias ? run.parameters[1] : TensorView{}});
  }

  void backward(const LayerRun& run) const override {
    const ops::WindowConv2d c = conv(image_of(run.inputs[0]));
    const LayerGradients& g = run.gradients;
    ops::window_conv2d_backward_weights(run.kernels,
                                        {.conv = c,
                                         .x = run.inputs[0],
                                         .dy = g.output,
                                         .dweight = g.parameters[0],
                                         .dbias = options_.bias ? g.parameters[1] : TensorView{},
                                         .write = g.parameter_write});
    if (g.inputs[0])
      ops::window_conv2d_backward_data(run.kernels, {.conv = c,
                                                     .dy = g.output,
                                                     .weight = run.parameters[0],
                                                     .dx = g.inputs[0],
                                                     .write = g.input_writes[0]});
  }

 private:
  ops::WindowConv2d conv(const Shape& image) const {
    return {window_geometry(image, windows_), options_.out_channels, options_.groups};
  }

  Conv2dOptions options_;
  WindowOptions windows_;
};

WindowOptions windows_of(const ConvTransposeOptions& o) {
  return {o.kernel, o.stride, o.dilation, o.padding, o.groups};
}

std::vector<LayerOption> options_of(const ConvTransposeOptions& o) {
  std::vector<LayerOption> all = window_option_list(windows_of(o));
  all.push_back({"output_padding", static_cast<double>(o.output_padding.height)});
  all.push_back({"output_padding", static_cast<double>(o.output_padding.width)});
  return all;
}

// The convolution whose input has this layer's output shape, and the other way around: its backward
// pass for the input is this layer's forward pass.
class ConvTranspose final : public Layer {
 public:
  explicit ConvTranspose(const ConvTransposeOptions& options)
      : Layer({.kind = "conv_transpose",
               .options = options_of(options),
               .backward_needs = {.inputs = true},
               .stores_bf16_on_cpu = true}),
        options_(options),
        windows_(windows_of(options)) {
    expect_window_options("conv_transpose", windows_, options.out_channels);
    expect_output_padding(options.output_padding.height, windows_.stride.height,
                          windows_.dilation.height);
    expect_output_padding(options.output_padding.width, windows_.stride.width,
                          windows_.dilation.width);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& x = inputs[0];
    expect_rank(x, 3, "[h, w, c]");
    if (x[2] % options_.groups != 0)
      throw ShapeError("expected channels that " + std::to_string(options_.groups) +
                       " groups divide, got " + x.to_string());
    const ops::WindowGeometry one = window_geometry({1, 1, 1}, windows_, options_.output_padding);
    const auto extent = [](std::int64_t count, const ops::WindowAxis& axis) {
      return checked_multiply(count - 1, axis.stride) + axis.reach() - axis.before - axis.after;
    };
    const std::int64_t h = extent(x[0], one.rows), w = extent(x[1], one.columns);
    if (h >= 1 && w >= 1) return {h, w, options_.out_channels};
    throw ShapeError("expected an input whose output has a pixel that is not padding, got " +
                     x.to_string());
  }

  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return window_parameters({inputs[0][2], options_.out_channels / options_.groups,
                              options_.kernel, options_.bias ? options_.out_channels : 0});
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    return {.scratch = ops::window_conv2d_scratch_bytes(
                conv(output_shape(r.inputs), r.inputs[0][2]), r.batch, r.dtype, r.threads, r.device,
                r.products)};
  }

  void forward(const LayerRun& run) const override {
    if (options_.bias) ops::fill_pixels(run.kernels, run.parameters[1], run.output);
    ops::window_conv2d_backward_data(run.kernels,
                                     {.conv = conv(image_of(run.output), run.inputs[0].shape[3]),
                                      .dy = run.inputs[0],
                                      .weight = run.parameters[0],
                                      .dx = run.output,
                                      .write = options_.bias ? Write::kAdd : Write::kOverwrite});
  }

  void backward(const LayerRun& run) const override {
    const LayerGradients& g = run.gradients;
    const ops::WindowConv2d c = conv(image_of(g.output), run.inputs[0].shape[3]);
    ops::window_conv2d_backward_weights(run.kernels, {.conv = c,
                                                      .x = g.output,
                                                      .dy = run.inputs[0],
                                                      .dweight = g.parameters[0],
                                                      .write = g.parameter_write});
    if (options_.bias) add_up_bias(run);
    if (g.inputs[0])
      ops::window_conv2d_forward(run.kernels, {.conv = c,
                                               .x = g.output,
                                               .weight = run.parameters[0],
                                               .y = g.inputs[0],
                                               .write = g.input_writes[0]});
  }

 private:
  static void expect_output_padding(std::int64_t value, std::int64_t stride,
                                    std::int64_t dilation) {
    expect_at_least("conv_transpose", "output_padding", value, 0);
    if (value >= stride && value >= dilation)
      throw ModelError("conv_transpose: output_padding must be below stride or dilation, not " +
                       std::to_string(value));
  }

  static void add_up_bias(const LayerRun& run) {
    const TensorView &dy = run.gradients.output, &dbias = run.gradients.parameters[1];
    const std::int64_t channels = dbias.count();
    ops::StridedSum sum{.u = dy, .y = dbias, .write = run.gradients.parameter_write};
    sum.kept.add({channels, {1, 0, 0, 1}});
    sum.summed.add({dy.count() / channels, {channels, 0, 0, 0}});
    ops::strided_sum(run.kernels, sum);
  }

  // `image`: the output of this layer.
  ops::WindowConv2d conv(const Shape& image, std::int64_t channels) const {
    return {window_geometry(image, windows_, options_.output_padding), channels, options_.groups};
  }

  ConvTransposeOptions options_;
  WindowOptions windows_;
};

bool is_square(const Conv2dOptions& o) {
  return o.kernel.height == o.kernel.width && o.stride.height == o.stride.width &&
         o.dilation == HeightWidth(1) && o.padding == Sides(o.padding.top);
}

}  // namespace

LayerPtr conv2d(const Conv2dOptions& options) {
  return is_square(options) ? square_conv2d(options) : window_conv2d(options);
}
LayerPtr window_conv2d(const Conv2dOptions& options) {
  return std::make_unique<WindowConv2d>(options);
}
LayerPtr conv_transpose(const ConvTransposeOptions& options) {
  return std::make_unique<ConvTranspose>(options);
}

}  // namespace engine::layers
