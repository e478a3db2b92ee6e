// The operands of convolutions of any window, of patches and of resizing; the header of each
// describes them.
#pragma once

#include <algorithm>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/windows/resize_axis.h"
#include "engine/ops/windows/window_geometry.h"

namespace engine::ops {

struct WindowConv2d {
  WindowGeometry window;  // its channels are those of x
  std::int64_t out_channels = 1, groups = 1;
};

struct WindowConv2dForward {
  WindowConv2d conv;
  TensorView x, weight, y;
  TensorView bias{};  // only with kOverwrite
  Write write = Write::kOverwrite;
};

struct WindowConv2dBackwardData {
  WindowConv2d conv;
  TensorView dy, weight, dx;
  Write write = Write::kOverwrite;
};

// dbias is absent if there is no bias.
struct WindowConv2dBackwardWeights {
  WindowConv2d conv;
  TensorView x, dy, dweight;
  TensorView dbias{};
  Write write = Write::kOverwrite;
};

struct Patches {
  WindowGeometry window;
  TensorView x, patches;
  std::int64_t first_line = 0, lines = 0;
  std::int64_t first_channel = 0, channels = 0;
};

// The rows of pixels of x, counted over all images, that lie between those of the first window and
// those of the last: [first, last). REQUIRES: lines > 0.
struct PixelRows {
  std::int64_t first, last;
};
inline PixelRows rows_read_by(const Patches& o) {
  const WindowAxis& rows = o.window.rows;
  const auto place = [&](std::int64_t line, std::int64_t k) {
    const std::int64_t image = line / rows.count(),
                       row = line % rows.count() * rows.stride - rows.before + k * rows.dilation;
    return image * rows.extent + std::clamp<std::int64_t>(row, 0, rows.extent - 1);
  };
  return {place(o.first_line, 0), place(o.first_line + o.lines - 1, rows.kernel - 1) + 1};
}

struct ResizeForward {
  ResizeAxis rows, columns;
  TensorView x, y;
};

struct ResizeBackward {
  ResizeAxis rows, columns;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};

}  // namespace engine::ops
