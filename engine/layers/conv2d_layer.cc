// Two-dimensional convolution with a square window (spatial/ has the others). The weight is [out,
// in / groups, kh, kw] in files and [kh, kw, in / groups, out] in memory.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/conv2d/conv2d.h"

namespace engine::layers {
namespace {

class Conv2d final : public Layer {
 public:
  explicit Conv2d(const Conv2dOptions& options)
      : Layer({.kind = "conv2d",
               .options = {{"stride", static_cast<double>(options.stride.height)},
                           {"padding", static_cast<double>(options.padding.top)},
                           {"groups", static_cast<double>(options.groups)}},
               .backward_needs = {.inputs = true},
               // Like the fast kernels.
               .stores_bf16_on_cpu = options.stride.height <= 4 || options.groups > 1}),
        options_(options),
        kernel_(options.kernel.height),
        stride_(options.stride.height),
        padding_(options.padding.top) {
    expect_at_least("conv2d", "out_channels", options.out_channels, 1);
    expect_at_least("conv2d", "kernel", kernel_, 1);
    expect_at_least("conv2d", "stride", stride_, 1);
    expect_at_least("conv2d", "padding", padding_, 0);
    expect_at_least("conv2d", "groups", options.groups, 1);
    if (options.out_channels % options.groups != 0)
      throw ModelError("conv2d: out_channels must be a multiple of groups, " +
                       std::to_string(options.groups) + ", not " +
                       std::to_string(options.out_channels));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_window(inputs[0], kernel_, padding_);
    if (inputs[0][2] % options_.groups != 0)
      throw ShapeError("expected channels that " + std::to_string(options_.groups) +
                       " groups divide, got " + inputs[0].to_string());
    const ops::Conv2dGeometry g = geometry(inputs[0]);
    return {g.out_h(), g.out_w(), g.out_channels};
  }

  LayerPtr in_form(LayerForm form) const override {
    return form == LayerForm::kCommonLayout ? window_conv2d(options_) : nullptr;
  }

  // fan_in = in / groups * kh * kw, fan_out = out * kh * kw. A bias is always initialized as in
  // PyTorch.
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::int64_t in = inputs[0][2] / options_.groups, k = kernel_;
    const auto fan = [&](std::int64_t channels) {
      return static_cast<double>(channels) * static_cast<double>(k) * static_cast<double>(k);
    };
    const Initializer uniform{Initializer::Kind::kUniform, 1 / std::sqrt(fan(in))};
    const Initializer normal{Initializer::Kind::kNormal, std::sqrt(2 / fan(options_.out_channels))};
    TensorLayout weight{.file_shape = {options_.out_channels, in, k, k}};
    weight.permutation = {2, 3, 1, 0, 4, 5, 6, 7};
    std::vector<ParameterSpec> specs{
        {"weight", weight, options_.init == ConvInit::kNormalFanOut ? normal : uniform}};
    if (options_.bias)
      specs.push_back({"bias", TensorLayout::plain({options_.out_channels}), uniform});
    return specs;
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    return {.scratch = ops::conv2d_scratch_bytes(geometry(r.inputs[0]), r.batch, r.dtype, r.threads,
                                                 r.device, r.products)};
  }

  void forward(const LayerRun& run) const override {
    ops::conv2d_forward(run.kernels, {.geometry = geometry_of_batch(run.inputs[0].shape),
                                      .x = run.inputs[0],
                                      .weight = run.parameters[0],
                                      .y = run.output,
                                      .bias = options_.bias ? run.parameters[1] : TensorView{}});
  }

  void backward(const LayerRun& run) const override {
    const ops::Conv2dGeometry g = geometry_of_batch(run.inputs[0].shape);
    ops::conv2d_backward_weights(
        run.kernels, {.geometry = g,
                      .x = run.inputs[0],
                      .dy = run.gradients.output,
                      .dweight = run.gradients.parameters[0],
                      .dbias = options_.bias ? run.gradients.parameters[1] : TensorView{},
                      .write = run.gradients.parameter_write});
    if (run.gradients.inputs[0])
      ops::conv2d_backward_data(run.kernels, {.geometry = g,
                                              .dy = run.gradients.output,
                                              .weight = run.parameters[0],
                                              .dx = run.gradients.inputs[0],
                                              .write = run.gradients.input_writes[0]});
  }

 private:
  // A stride larger than the padded input gives one output, as a stride of that extent does; the
  // time of the kernels depends on the stride.
  ops::Conv2dGeometry geometry(const Shape& item) const {
    const std::int64_t extent = std::max(item[0], item[1]) + 2 * padding_;
    return {.in_h = item[0],
            .in_w = item[1],
            .in_channels = item[2],
            .out_channels = options_.out_channels,
            .kernel_h = kernel_,
            .kernel_w = kernel_,
            .stride = std::min(stride_, extent),
            .padding = padding_,
            .groups = options_.groups};
  }
  ops::Conv2dGeometry geometry_of_batch(const Shape& x) const {
    return geometry({x[1], x[2], x[3]});
  }

  Conv2dOptions options_;
  std::int64_t kernel_, stride_, padding_;
};

}  // namespace

LayerPtr square_conv2d(const Conv2dOptions& options) { return std::make_unique<Conv2d>(options); }

}  // namespace engine::layers
