// Implements the rotary position embedding in plain loops, as the reference for tests. Contract:
// rotary.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "engine/ops/rotary/rotary_operands.h"

namespace engine::ops::reference {

// The angle of a pair at a position without its whole turns; negative if it is turned back.
inline double rotary_angle(double turns, std::int64_t position, bool back) {
  const double all = turns * static_cast<double>(position);
  return (back ? -2 : 2) * std::numbers::pi * (all - std::rint(all));
}

template <class T>
void rotary(const Rotary& o, const RotaryTurns& turns) {
  const std::int64_t t = o.x.shape[1], width = o.x.shape[2], half = o.size / 2;
  const bool add = o.write == Write::kAdd;
  for (std::int64_t row = 0; row < o.x.shape[0] * t; ++row) {
    const T* x = o.x.as<T>() + row * width;
    T* y = o.y.as<T>() + row * width;
    for (std::int64_t at = 0; at < o.heads * o.size; at += o.size)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = rotary_angle(turns.at[i], o.first_position(row / t) + row % t, o.back);
        const T c = static_cast<T>(std::cos(angle)), s = static_cast<T>(std::sin(angle));
        const T first = x[at + i], second = x[at + half + i];
        y[at + i] = (add ? y[at + i] : 0) + first * c - second * s;
        y[at + half + i] = (add ? y[at + half + i] : 0) + second * c + first * s;
      }
    for (std::int64_t i = o.heads * o.size; i < width; ++i) y[i] = (add ? y[i] : 0) + x[i];
  }
}

}  // namespace engine::ops::reference
