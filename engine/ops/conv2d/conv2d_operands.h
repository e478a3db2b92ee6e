// The operands of convolution, which conv2d.h describes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct Conv2dGeometry {
  std::int64_t in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel_h = 0, kernel_w = 0, stride = 1, padding = 0, groups = 1;

  std::int64_t out_h() const { return (in_h + 2 * padding - kernel_h) / stride + 1; }
  std::int64_t out_w() const { return (in_w + 2 * padding - kernel_w) / stride + 1; }
};

struct Conv2dForward {
  Conv2dGeometry geometry;
  TensorView x, weight, y;
  TensorView bias{};
};

// Gradient with respect to the input.
struct Conv2dBackwardData {
  Conv2dGeometry geometry;
  TensorView dy, weight, dx;
  Write write = Write::kOverwrite;
};

// Gradients of weight and bias.
struct Conv2dBackwardWeights {
  Conv2dGeometry geometry;
  TensorView x, dy, dweight;
  TensorView dbias{};  // absent if there is no bias
  Write write = Write::kOverwrite;
};

}  // namespace engine::ops
