// The operands of grouped convolution, which grouped_conv2d.h describes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct GroupedConv2dGeometry {
  std::int64_t in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel = 0, stride = 1, padding = 0, groups = 1;

  std::int64_t out_h() const { return (in_h + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_w() const { return (in_w + 2 * padding - kernel) / stride + 1; }
};

struct GroupedConv2dForward {
  GroupedConv2dGeometry geometry;
  TensorView x, weight, y;
  TensorView bias{};
};

// Gradient with respect to the input.
struct GroupedConv2dBackwardData {
  GroupedConv2dGeometry geometry;
  TensorView dy, weight, dx;
  Write write = Write::kOverwrite;
};

// Gradients of weight and bias.
struct GroupedConv2dBackwardWeights {
  GroupedConv2dGeometry geometry;
  TensorView x, dy, dweight;
  TensorView dbias{};  // absent if there is no bias
  Write write = Write::kOverwrite;
};

}  // namespace engine::ops
