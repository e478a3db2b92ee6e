// Patches of images: the numbers that each window of a convolution reads, side by side (Chellapilla
// et al., "High performance convolutional neural networks for document processing", 2006). x [n, h,
// w, c], patches [lines * columns.count(), kh, kw, channels]: the windows of some lines of output
// pixels, and some of the channels. Lines are counted over all images. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/windows/window_geometry.h"

namespace engine::ops {

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
PixelRows rows_read_by(const Patches& o);

void take_patches(KernelContext& context, const Patches& o);

// Adds to each element of x all elements of patches that are copies of it, in the order of the
// windows' places: the gradient of take_patches().
void add_patches(KernelContext& context, const Patches& o);

}  // namespace engine::ops
