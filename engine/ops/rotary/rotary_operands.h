// The operands of the rotary position embedding; rotary.h describes them.
#pragma once

#include <cstdint>
#include <span>

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

struct Rotary {
  TensorView x;
  std::int64_t heads = 0, size = 0;  // size is even and at most kMaxRotarySize
  RotaryFrequencies frequencies{};
  TensorView y;       // may be x (with kOverwrite)
  bool back = false;  // turns back: x is the gradient of y, and y that of x
  Write write = Write::kOverwrite;
  // [n], in host memory on every device: the positions of the samples' first rows; empty: all 0.
  std::span<const std::int64_t> first_positions{};

  std::int64_t first_position(std::int64_t sample) const {
    return first_positions.empty() ? 0 : first_positions[static_cast<std::size_t>(sample)];
  }
};

}  // namespace engine::ops
