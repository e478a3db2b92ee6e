// Rotary position embedding (Su et al., RoFormer, 2021) in the form of Llama and of the library
// transformers (rotate_half): elements i and i + size / 2 of a head are a pair, which is turned by
// the angle position * frequency_i.
//
//   y_i = x_i cos - x_j sin,  y_j = x_j cos + x_i sin,  j = i + size / 2
// x, y [n, t, width]: the first `heads` heads of `size` elements are turned, the rest is copied.
// Angles are computed in float64, so that they are exact to f32 at any position.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

inline constexpr std::int64_t kMaxRotarySize = 256;

// frequency_i = theta^(-2 i / size). With a factor other than 1, as Llama 3.1 lengthens its
// context: frequencies with fewer than `low_factor` turns in `original_context` positions are
// divided by the factor, those with more than `high_factor` are kept, and those between are
// interpolated.
struct RotaryFrequencies {
  double theta = 10000, factor = 1, low_factor = 1, high_factor = 4, original_context = 8192;
};

// The turns per position of each pair: frequency / (2 pi); zeros follow.
struct RotaryTurns {
  double at[kMaxRotarySize / 2];
};
RotaryTurns rotary_turns(const RotaryFrequencies& frequencies, std::int64_t size);

struct Rotary {
  TensorView x;
  std::int64_t heads, size;  // size is even and at most kMaxRotarySize
  RotaryFrequencies frequencies{};
  TensorView y;       // may be x (with kOverwrite)
  bool back = false;  // turns back: x is the gradient of y, and y that of x
  Write write = Write::kOverwrite;
  std::int64_t first_position = 0;  // of every sample
};
// Returns the scratch size for t positions.
std::size_t rotary_scratch_bytes(std::int64_t t, std::int64_t size, Device::Kind device);
void rotary(KernelContext& context, const Rotary& o);

}  // namespace engine::ops
