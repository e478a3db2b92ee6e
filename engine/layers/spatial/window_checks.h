// Options that convolutions of any window share: their checks, geometry, and form in LayerTraits.
#pragma once

#include <vector>

#include "engine/layers/layers.h"
#include "engine/ops/windows/window_conv2d.h"

namespace engine::layers {

struct WindowOptions {
  HeightWidth kernel, stride, dilation;
  Sides padding;
  std::int64_t groups;
};

// Throws ModelError for a number that is out of range, also if groups do not divide out_channels.
void expect_window_options(const char* kind, const WindowOptions& options,
                           std::int64_t out_channels);

// The options stride, dilation and padding as lists, and groups.
std::vector<LayerOption> window_option_list(const WindowOptions& options);

// The windows on an image [h, w, c]; `after` of both axes is less by `removed`.
ops::WindowGeometry window_geometry(const Shape& image, const WindowOptions& options,
                                    HeightWidth removed = 0);

// Throws ShapeError unless the image has rank 3, groups divide its channels, and a window fits into
// it.
void expect_windows(const Shape& image, const WindowOptions& options);

// A weight [outer, inner, kernel height, kernel width] in files, [outer, height, width, inner] in
// memory, and a bias; both uniform within 1 / sqrt(inner * kernel height * kernel width).
struct WindowWeight {
  std::int64_t outer, inner;
  HeightWidth kernel;
  std::int64_t biases;  // 0: no bias
};
std::vector<ParameterSpec> window_parameters(const WindowWeight& weight);

}  // namespace engine::layers
