// Factories of the layers that change the height and the width of images. Options and initial
// distributions are PyTorch's.
#pragma once

#include "engine/layers/layers.h"

namespace engine::layers {

struct ConvTransposeOptions {
  std::int64_t out_channels = 0;
  HeightWidth kernel = 3, stride = 1;
  Sides padding = 0;
  HeightWidth output_padding = 0;  // rows and columns that the output has more at the end
  bool bias = true;
  std::int64_t groups = 1;
  HeightWidth dilation = 1;
};
// Input [h, w, c], output [(h - 1) stride + dilation (kernel - 1) + 1 + output_padding - padding,
// ..., out_channels]; parameters weight [c, out_channels / groups, kernel height, kernel width],
// bias.
LayerPtr conv_transpose(const ConvTransposeOptions& options);

struct ConvolveOptions {
  HeightWidth stride = 1;
  Sides padding = 0;
  HeightWidth dilation = 1;
  std::int64_t groups = 1;
};
// conv2d without a bias, whose weight is the second input, [outputs, kernel height, kernel width, c
// / groups]: each sample has its own. Computes and stores one for each sample of a batch.
LayerPtr convolve(const ConvolveOptions& options);

struct ResizeOptions {
  bool linear = false;  // bilinear; else the nearest pixel
  double factor_height = 2, factor_width = 2;
  HeightWidth size = 0;  // replaces the factors unless 0
};
// Input [h, w, c], output [floor(h factor_height), floor(w factor_width), c] or [size, c]:
// PyTorch's interpolate with align_corners=False.
LayerPtr resize(const ResizeOptions& options);

// Input [h, w, c], output [top + h + bottom, left + w + right, c]: `value` around the image.
LayerPtr pad(const Sides& sides, double value = 0);

}  // namespace engine::layers
