// Rotary position embedding (Su et al., RoFormer, 2021) in the form of Llama and of the library
// transformers (rotate_half): elements i and i + size / 2 of a head are a pair, which is turned by
// the angle position * frequency_i.
//
//   y_i = x_i cos - x_j sin,  y_j = x_j cos + x_i sin,  j = i + size / 2
// x, y [n, t, width]: the first `heads` heads of `size` elements are turned, the rest is copied.
// Angles are computed in float64, so that they are exact to f32 at any position.
#pragma once

#include "engine/ops/rotary/rotary_operands.h"

namespace engine::ops {

RotaryTurns rotary_turns(const RotaryFrequencies& frequencies, std::int64_t size);

// Returns the scratch size for t positions.
std::size_t rotary_scratch_bytes(std::int64_t t, std::int64_t size, Device::Kind device);
void rotary(KernelContext& context, const Rotary& o);

}  // namespace engine::ops
