// Patches of images: the numbers that each window of a convolution reads, side by side (Chellapilla
// et al., "High performance convolutional neural networks for document processing", 2006). x [n, h,
// w, c], patches [lines * columns.count(), kh, kw, channels]: the windows of some lines of output
// pixels, and some of the channels. Lines are counted over all images. Bound by bytes.
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops {

void take_patches(KernelContext& context, const Patches& o);

// Adds to each element of x all elements of patches that are copies of it, in the order of the
// windows' places: the gradient of take_patches().
void add_patches(KernelContext& context, const Patches& o);

}  // namespace engine::ops
