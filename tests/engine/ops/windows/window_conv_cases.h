// Convolutions of any window that the tests compute, and their definition in plain loops.
#pragma once

#include <vector>

#include "engine/ops/windows/window_conv2d.h"

namespace kernel_test {

struct WindowConvCase {
  std::int64_t n;
  engine::ops::WindowConv2d conv;

  Shape x() const {
    const auto& g = conv.window;
    return {n, g.rows.extent, g.columns.extent, g.channels};
  }
  Shape y() const {
    const auto& g = conv.window;
    return {n, g.rows.count(), g.columns.count(), conv.out_channels};
  }
  Shape weight() const {
    const auto& g = conv.window;
    return {conv.out_channels, g.rows.kernel, g.columns.kernel, g.channels / conv.groups};
  }
};

// Axes: extent, kernel, stride, dilation, before, after.
inline const std::vector<WindowConvCase> kWindowConvs{
    {2, {{{7, 3, 1, 1, 1, 1}, {5, 1, 1, 1, 0, 0}, 4}, 6, 1}},     // a column
    {3, {{{6, 1, 2, 1, 0, 0}, {9, 4, 1, 1, 2, 1}, 3}, 5, 1}},     // a row, more padding before
    {1, {{{9, 3, 1, 2, 2, 2}, {8, 3, 1, 2, 2, 2}, 8}, 8, 1}},     // dilation
    {2, {{{11, 2, 3, 3, 0, 1}, {7, 3, 2, 2, 1, 4}, 6}, 9, 3}},    // all of them, and groups
    {2, {{{5, 3, 1, 2, 2, 2}, {6, 3, 1, 2, 2, 2}, 5}, 5, 5}},     // depthwise
    {2, {{{9, 3, 1, 3, 1, 4}, {7, 5, 2, 1, 2, 1}, 66}, 66, 66}},  // in more than a block
    {2, {{{6, 2, 2, 3, 2, 0}, {8, 1, 3, 1, 0, 1}, 3}, 6, 3}},     // two outputs of each channel
    {0, {{{5, 3, 1, 2, 2, 2}, {6, 3, 1, 2, 2, 2}, 5}, 5, 5}},     // depthwise, no images
    {2, {{{8, 3, 2, 1, 1, -2}, {7, 3, 1, 1, -1, 0}, 2}, 3, 1}},   // removes places
    {2, {{{4, 2, 7, 1, 0, 0}, {4, 2, 5, 1, 0, 3}, 3}, 2, 1}},     // strides beyond the kernel
    {0, {{{4, 2, 1, 1, 0, 0}, {4, 3, 1, 1, 0, 0}, 3}, 2, 1}},     // no images
    {1, {{{1, 5, 1, 1, 2, 2}, {70, 3, 1, 1, 1, 1}, 65}, 3, 1}},   // more channels than a block
};

// Calls body(place in x, place in y, place in weight) for each product.
template <class Body>
void for_each_tap(const WindowConvCase& c, Body body) {
  const auto& [rows, columns, in] = c.conv.window;
  const std::int64_t out = c.conv.out_channels, ins = in / c.conv.groups,
                     outs = out / c.conv.groups;
  for (std::int64_t i = 0; i < c.y().count(); ++i) {
    const std::int64_t o = i % out, ox = i / out % columns.count(),
                       oy = i / out / columns.count() % rows.count(),
                       image = i / out / columns.count() / rows.count();
    for (std::int64_t t = 0; t < rows.kernel * columns.kernel * ins; ++t) {
      const std::int64_t iy = oy * rows.stride - rows.before +
                              t / ins / columns.kernel * rows.dilation,
                         ix = ox * columns.stride - columns.before +
                              t / ins % columns.kernel * columns.dilation;
      if (iy < 0 || iy >= rows.extent || ix < 0 || ix >= columns.extent) continue;
      const std::int64_t channel = o / outs * ins + t % ins;
      body(((image * rows.extent + iy) * columns.extent + ix) * in + channel, i,
           o * rows.kernel * columns.kernel * ins + t);
    }
  }
}

}  // namespace kernel_test
