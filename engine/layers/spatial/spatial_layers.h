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

}  // namespace engine::layers
