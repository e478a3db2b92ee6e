// Checks and describes the windows of convolutions.
#include "engine/layers/spatial/window_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"

namespace engine::layers {
namespace {

void expect_both(const char* kind, const char* option, const HeightWidth& values,
                 std::int64_t least) {
  expect_at_least(kind, option, values.height, least);
  expect_at_least(kind, option, values.width, least);
}

}  // namespace

void expect_window_options(const char* kind, const WindowOptions& o, std::int64_t out_channels) {
  expect_at_least(kind, "out_channels", out_channels, 1);
  expect_both(kind, "kernel", o.kernel, 1);
  expect_both(kind, "stride", o.stride, 1);
  expect_both(kind, "dilation", o.dilation, 1);
  expect_both(kind, "padding", {o.padding.top, o.padding.left}, 0);
  expect_both(kind, "padding", {o.padding.bottom, o.padding.right}, 0);
  expect_at_least(kind, "groups", o.groups, 1);
  if (out_channels % o.groups != 0)
    throw ModelError(std::string(kind) + ": out_channels must be a multiple of groups, " +
                     std::to_string(o.groups) + ", not " + std::to_string(out_channels));
}

std::vector<LayerOption> window_option_list(const WindowOptions& o) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  return {{"stride", number(o.stride.height)},
          {"stride", number(o.stride.width)},
          {"dilation", number(o.dilation.height)},
          {"dilation", number(o.dilation.width)},
          {"padding", number(o.padding.top)},
          {"padding", number(o.padding.left)},
          {"padding", number(o.padding.bottom)},
          {"padding", number(o.padding.right)},
          {"groups", number(o.groups)}};
}

ops::WindowGeometry window_geometry(const Shape& image, const WindowOptions& o,
                                    HeightWidth removed) {
  return {{image[0], o.kernel.height, o.stride.height, o.dilation.height, o.padding.top,
           o.padding.bottom - removed.height},
          {image[1], o.kernel.width, o.stride.width, o.dilation.width, o.padding.left,
           o.padding.right - removed.width},
          image[2]};
}

void expect_windows(const Shape& image, const WindowOptions& o) {
  expect_rank(image, 3, "[h, w, c]");
  if (image[2] % o.groups != 0)
    throw ShapeError("expected channels that " + std::to_string(o.groups) + " groups divide, got " +
                     image.to_string());
  const ops::WindowGeometry g = window_geometry(image, o);
  const auto least = [](const ops::WindowAxis& axis) {
    return std::max<std::int64_t>(1, axis.reach() - axis.before - axis.after);
  };
  if (image[0] >= least(g.rows) && image[1] >= least(g.columns)) {
    const Shape padded{image[0] + g.rows.before + g.rows.after,
                       image[1] + g.columns.before + g.columns.after, image[2]};
    checked_elements(padded.count(), "the padded input " + padded.to_string());
    return;
  }
  throw ShapeError("expected an input of at least " +
                   Shape{least(g.rows), least(g.columns), image[2]}.to_string() + " (window " +
                   std::to_string(g.rows.reach()) + " x " + std::to_string(g.columns.reach()) +
                   "), got " + image.to_string());
}

std::vector<ParameterSpec> window_parameters(const WindowWeight& w) {
  const double fan = static_cast<double>(w.inner) * static_cast<double>(w.kernel.height) *
                     static_cast<double>(w.kernel.width);
  const Initializer uniform{Initializer::Kind::kUniform, 1 / std::sqrt(fan)};
  TensorLayout weight{.file_shape = {w.outer, w.inner, w.kernel.height, w.kernel.width}};
  weight.permutation = {0, 2, 3, 1, 4, 5, 6, 7};
  std::vector<ParameterSpec> specs{{"weight", weight, uniform}};
  if (w.biases > 0) specs.push_back({"bias", TensorLayout::plain({w.biases}), uniform});
  return specs;
}

}  // namespace engine::layers
