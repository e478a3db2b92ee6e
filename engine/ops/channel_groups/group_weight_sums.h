// Adds products to the gradient of the weights of groups of several channels. Vectors lie along the
// channels of the input, so that a permuted or broadcast channel of the output's gradient serves
// several taps. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/channel_groups/bundles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

namespace group_weights {

inline constexpr int kTaps = 3, kOuts = kWidth == 16 ? 8 : 4;

// Sums of neighboring taps and channels of dy. Distances are in floats.
struct Sums {
  const float *x, *dy;  // for the first tap and channel, of the first row
  float* sums;          // [tap, channel of dy, lane]
  std::int64_t rows, pixels, x_row, x_step, x_tap, dy_row, dy_pixel, sums_tap;
  Ints index;
};

template <bool kPermuted, int kTap, int kOut>
void add_products_of(const Sums& s) {
  Floats total[kTap][kOut];
  Ints index[kOut];
  ENGINE_UNROLL
  for (int o = 0; o < kOut; ++o) {
    index[o] = s.index + o;
    ENGINE_UNROLL
    for (int b = 0; b < kTap; ++b)
      total[b][o] = load(s.sums + b * s.sums_tap + std::int64_t{o} * kWidth);
  }
  const std::int64_t dy_pixel = kPermuted ? kWidth : s.dy_pixel;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const float *x = s.x + row * s.x_row, *dy = s.dy + row * s.dy_row;
    for (std::int64_t pixel = 0; pixel < s.pixels; ++pixel, x += s.x_step, dy += dy_pixel) {
      Floats at[kTap], all{};
      ENGINE_UNROLL
      for (int b = 0; b < kTap; ++b) at[b] = load(x + b * s.x_tap);
      if constexpr (kPermuted) all = load(dy);
      ENGINE_UNROLL
      for (int o = 0; o < kOut; ++o) {
        const Floats gradient = kPermuted ? permute(all, index[o]) : broadcast(dy[o]);
        ENGINE_UNROLL
        for (int b = 0; b < kTap; ++b) total[b][o] += at[b] * gradient;
      }
    }
  }
  ENGINE_UNROLL
  for (int o = 0; o < kOut; ++o) ENGINE_UNROLL
  for (int b = 0; b < kTap; ++b)
    store(s.sums + b * s.sums_tap + std::int64_t{o} * kWidth, total[b][o]);
}

using Loop = void (*)(const Sums& sums);
template <bool kPermuted, int kTap>
Loop loop_of(std::int64_t outs) {
  return outs == kOuts ? add_products_of<kPermuted, kTap, kOuts>
         : outs == 4   ? add_products_of<kPermuted, kTap, 4>
         : outs == 2   ? add_products_of<kPermuted, kTap, 2>
                       : add_products_of<kPermuted, kTap, 1>;
}
template <bool kPermuted>
Loop loop_for(std::int64_t taps, std::int64_t outs) {
  return taps == kTaps ? loop_of<kPermuted, kTaps>(outs)
         : taps == 2   ? loop_of<kPermuted, 2>(outs)
                       : loop_of<kPermuted, 1>(outs);
}
// The number of channels of dy that a loop with `left` of them takes.
inline std::int64_t outs_at_once(std::int64_t left) {
  return left >= kOuts ? kOuts : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

}  // namespace group_weights

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
