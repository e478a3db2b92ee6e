// Images of another size: interpolated, or with a border of a constant value.
#include <cmath>
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/strided_copy.h"
#include "engine/ops/windows/resize.h"

namespace engine::layers {
namespace {

void expect_factor(double factor) {
  if (!(factor > 0 && factor <= 1024))
    throw ModelError("resize: factor must be above 0 and at most 1024, not " +
                     std::to_string(factor));
}

class Resize final : public Layer {
 public:
  explicit Resize(const ResizeOptions& options)
      : Layer({.kind = "resize",
               .options = {{"linear", options.linear ? 1.0 : 0.0},
                           {"size", static_cast<double>(options.size.height)},
                           {"size", static_cast<double>(options.size.width)},
                           {"factor", options.factor_height},
                           {"factor", options.factor_width}},
               .stores_bf16_on_cpu = true}),
        options_(options) {
    expect_at_least("resize", "size", options.size.height, 0);
    expect_at_least("resize", "size", options.size.width, 0);
    if ((options.size.height == 0) != (options.size.width == 0))
      throw ModelError("resize: size must have two numbers above 0");
    expect_factor(options.factor_height);
    expect_factor(options.factor_width);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& x = inputs[0];
    expect_rank(x, 3, "[h, w, c]");
    const Shape output{rows(x[0]).out, columns(x[1]).out, x[2]};
    if (output[0] < 1 || output[1] < 1)
      throw ShapeError("expected an input whose output has a pixel, got " + x.to_string());
    checked_elements(output.count(), "the output " + output.to_string());
    return output;
  }

  void forward(const LayerRun& run) const override {
    const Shape& x = run.inputs[0].shape;
    ops::resize_forward(run.kernels, {rows(x[1]), columns(x[2]), run.inputs[0], run.output});
  }
  void backward(const LayerRun& run) const override {
    const TensorView& dx = run.gradients.inputs[0];
    if (!dx) return;
    ops::resize_backward(run.kernels, {rows(dx.shape[1]), columns(dx.shape[2]),
                                       run.gradients.output, dx, run.gradients.input_writes[0]});
  }

 private:
  ops::ResizeAxis axis(std::int64_t in, std::int64_t size, double factor) const {
    const auto out =
        size > 0 ? size : static_cast<std::int64_t>(std::floor(static_cast<double>(in) * factor));
    return {in, out, size > 0 ? static_cast<double>(in) / static_cast<double>(out) : 1 / factor,
            options_.linear};
  }
  ops::ResizeAxis rows(std::int64_t in) const {
    return axis(in, options_.size.height, options_.factor_height);
  }
  ops::ResizeAxis columns(std::int64_t in) const {
    return axis(in, options_.size.width, options_.factor_width);
  }

  ResizeOptions options_;
};

class Pad final : public Layer {
 public:
  Pad(const Sides& sides, double value)
      : Layer({.kind = "pad",
               .options = {{"sides", static_cast<double>(sides.top)},
                           {"sides", static_cast<double>(sides.left)},
                           {"sides", static_cast<double>(sides.bottom)},
                           {"sides", static_cast<double>(sides.right)},
                           {"value", value}},
               .stores_bf16_on_cpu = true}),
        sides_(sides),
        value_(value) {
    for (const std::int64_t side : {sides.top, sides.left, sides.bottom, sides.right})
      expect_at_least("pad", "padding", side, 0);
    if (std::isnan(value)) throw ModelError("pad: value is not a number");
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    const Shape output{inputs[0][0] + sides_.top + sides_.bottom,
                       inputs[0][1] + sides_.left + sides_.right, inputs[0][2]};
    checked_elements(output.count(), "the output " + output.to_string());
    return output;
  }

  void forward(const LayerRun& run) const override {
    ops::fill(run.kernels, value_, run.output);
    const ops::StridedCopy copy{.x = run.inputs[0],
                                .y = run.output,
                                .axes = axes(run.inputs[0].shape, run.output.shape, 0),
                                .y_first = first(run.output.shape)};
    ops::strided_copy(run.kernels, copy);
  }
  void backward(const LayerRun& run) const override {
    const TensorView &dy = run.gradients.output, &dx = run.gradients.inputs[0];
    if (!dx) return;
    ops::strided_copy(run.kernels, {.x = dy,
                                    .y = dx,
                                    .axes = axes(dx.shape, dy.shape, 1),
                                    .x_first = first(dy.shape),
                                    .write = run.gradients.input_writes[0]});
  }

 private:
  // The place of the image's first number in the padded one.
  std::int64_t first(const Shape& padded) const {
    return (sides_.top * padded[2] + sides_.left) * padded[3];
  }
  // The axes of a copy of the image; it is the operand `image_operand`.
  static ops::Axes<2> axes(const Shape& image, const Shape& padded, std::size_t image_operand) {
    const auto small = ops::dense_steps(image), large = ops::dense_steps(padded);
    ops::Axes<2> all;
    for (int d = 0; d < image.rank(); ++d) {
      ops::Axis<2> axis{.count = image[d]};
      axis.steps[image_operand] = small[static_cast<std::size_t>(d)];
      axis.steps[1 - image_operand] = large[static_cast<std::size_t>(d)];
      all.add(axis);
    }
    return all;
  }

  Sides sides_;
  double value_;
};

}  // namespace

LayerPtr resize(const ResizeOptions& options) { return std::make_unique<Resize>(options); }
LayerPtr pad(const Sides& sides, double value) { return std::make_unique<Pad>(sides, value); }

}  // namespace engine::layers
