// Rows of depthwise convolutions of 3, 5 or 7 taps along a row: the values of neighboring pixels
// are loaded once for all taps of a row, so that multiply-adds and not loads limit the speed. Only
// for sources compiled once per instruction set. Sums have the order of plain loops over the taps.
#pragma once

#include <cstdint>

#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// A row of results, and the rows that it reads. Distances are in elements.
struct DepthwiseRow {
  const Stored* from;                    // pixel 0 of the first row that is read
  const float* weight;                   // the first tap for that row
  const float* bias;                     // null: none
  Stored* to;                            // the first result
  std::int64_t channels, rows, columns;  // of the rows that are read
  std::int64_t from_row, weight_row, weight_tap, to_step;
  std::int64_t results;
  std::int64_t left;  // the leftmost column that the first result reads; below 0 there are zeros
};

// Pixels of a tile: their sums and the values that they read fit in the registers.
inline constexpr int kDepthwisePixels = kWidth == 16 ? 8 : 4;

// Computes kDepthwisePixels results from `left` on. With kChecked, only `count` of them are
// written, and columns outside of the map are 0.
template <int kTaps, int kStep, bool kReversed, bool kAdd, bool kChecked>
ENGINE_INLINE void depthwise_tile(const DepthwiseRow& r, std::int64_t left, std::int64_t count,
                                  Stored* to) {
  constexpr int kPixels = kDepthwisePixels, kColumns = (kPixels - 1) * kStep + kTaps;
  const Stored* first = r.from + left * r.channels;
  for_each_vector(0, r.channels, [&](auto lanes, std::int64_t c) {
    Floats sum[kPixels];
    const Floats start = r.bias != nullptr ? lanes.load_from(r.bias + c) : zero();
    for (int t = 0; t < kPixels; ++t) sum[t] = start;
    for (std::int64_t a = 0; a < r.rows; ++a) {
      const Stored* from = first + a * r.from_row + c;
      const float* weight = r.weight + a * r.weight_row + c;
      Floats column[kColumns];
      for (int i = 0; i < kColumns; ++i) {
        const bool outside = kChecked && (left + i < 0 || left + i >= r.columns);
        column[i] = outside ? zero() : lanes.load_from(from + i * r.channels);
      }
      for (int b = 0; b < kTaps; ++b) {
        const Floats tap = lanes.load_from(weight + b * r.weight_tap);
        for (int t = 0; t < kPixels; ++t)
          sum[t] += column[t * kStep + (kReversed ? kTaps - 1 - b : b)] * tap;
      }
    }
    for (int t = 0; t < kPixels; ++t)
      if (!kChecked || t < count) put<kAdd>(lanes, to + t * r.to_step + c, sum[t]);
  });
}

template <int kTaps, int kStep, bool kReversed, bool kAdd>
void depthwise_row(const DepthwiseRow& r) {
  constexpr int kPixels = kDepthwisePixels, kColumns = (kPixels - 1) * kStep + kTaps;
  for (std::int64_t j = 0; j < r.results; j += kPixels) {
    const std::int64_t left = r.left + j * kStep, count = smaller(kPixels, r.results - j);
    Stored* to = r.to + j * r.to_step;
    if (count == kPixels && left >= 0 && left + kColumns <= r.columns)
      depthwise_tile<kTaps, kStep, kReversed, kAdd, false>(r, left, count, to);
    else
      depthwise_tile<kTaps, kStep, kReversed, kAdd, true>(r, left, count, to);
  }
}

// Returns the loop for `taps` taps and this step between results, which reads columns from right
// to left if it is reversed; null if there is none.
using DepthwiseRowLoop = void (*)(const DepthwiseRow& row);
template <bool kAdd>
ENGINE_INLINE DepthwiseRowLoop depthwise_row_for(std::int64_t taps, std::int64_t step,
                                                 bool reversed) {
  if (reversed) {
    if (step != 1) return nullptr;
    return taps == 2   ? depthwise_row<2, 1, true, kAdd>
           : taps == 3 ? depthwise_row<3, 1, true, kAdd>
           : taps == 5 ? depthwise_row<5, 1, true, kAdd>
           : taps == 7 ? depthwise_row<7, 1, true, kAdd>
                       : nullptr;
  }
  if (step == 1)
    return taps == 3   ? depthwise_row<3, 1, false, kAdd>
           : taps == 5 ? depthwise_row<5, 1, false, kAdd>
           : taps == 7 ? depthwise_row<7, 1, false, kAdd>
                       : nullptr;
  if (step != 2) return nullptr;
  return taps == 3   ? depthwise_row<3, 2, false, kAdd>
         : taps == 5 ? depthwise_row<5, 2, false, kAdd>
                     : nullptr;
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
