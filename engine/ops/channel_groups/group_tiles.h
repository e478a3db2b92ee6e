// Computes tiles of convolutions of groups of several channels. A few pixels of a vector of
// channels share each load of a weight, and each loaded value serves neighboring taps. In a bundle
// of several groups, a permutation repeats a channel of each group for the group's results; in a
// bundle of one group, the channel is broadcast. Only for sources compiled once per instruction
// set.
#pragma once

#include "engine/ops/channel_groups/bundles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

namespace group_sums {

// The widths of tiles: the sums, a column's value and the weights of kTaps taps fit in registers.
inline constexpr int kWidest = kWidth == 16 ? 14 : 8, kMiddle = 8, kNarrow = 4,
                     kPairWidth = kWidth == 16 ? 7 : 4;
inline constexpr int kTaps = 3;

// Returns the width of the next tile of a row with this many results left.
ENGINE_INLINE int tile_width(std::int64_t left) {
  if (left > kMiddle) return kWidest;
  return left > kNarrow ? kMiddle : kNarrow;
}
inline std::int64_t results_of_tiles(std::int64_t results) {
  std::int64_t all = 0;
  while (all < results) all += tile_width(results - all);
  return all;
}

// A row of results of one vector of channels. Distances are in floats, those of `to` in elements.
struct VectorRow {
  const float* from;    // the first column that result 0 reads, of its first row
  const float* weight;  // the first tap for that column and row
  Stored* to;
  const float* bias;  // null: none
  std::int64_t lanes;
};
struct Row {
  VectorRow of[2];  // the second one if two vectors are computed at once
  std::int64_t ins, rows, taps, step, results;
  std::int64_t from_row, pixel, weight_row, weight_tap, to_step;
  Ints index;
  bool add;
};

// The place where the sums of one vector of a tile begin: a column and a tap.
struct Start {
  const float *from, *weight;
};

// sum[t] += the products of kTaps neighboring taps of a row. kStep: the distance between results
// in columns; 0: any.
template <bool kPermuted, int kTaps, int kPixels, int kStep>
ENGINE_INLINE void add_channel(const Row& r, const Start& at, std::int64_t i, Ints index,
                               Floats (&sum)[kPixels]) {
  const std::int64_t pixel = kPermuted ? kWidth : r.pixel;
  const auto value = [&](std::int64_t column) {
    if constexpr (kPermuted) return permute(load(at.from + column * pixel), index);
    return broadcast(at.from[column * pixel + i]);
  };
  Floats tap[kTaps];
  ENGINE_UNROLL
  for (int b = 0; b < kTaps; ++b) tap[b] = load(at.weight + b * r.weight_tap + i * kWidth);
  if constexpr (kStep == 0) {
    ENGINE_UNROLL
    for (int t = 0; t < kPixels; ++t) ENGINE_UNROLL
    for (int b = 0; b < kTaps; ++b) sum[t] += value(t * r.step + b) * tap[b];
  } else {
    ENGINE_UNROLL
    for (int column = 0; column < (kPixels - 1) * kStep + kTaps; ++column) {
      const Floats from = value(column);
      ENGINE_UNROLL
      for (int b = 0; b < kTaps; ++b)
        if (column >= b && (column - b) % kStep == 0 && (column - b) / kStep < kPixels)
          sum[(column - b) / kStep] += from * tap[b];
    }
  }
}

template <bool kPermuted, int kTaps, int kStep, int kVectors, int kPixels>
ENGINE_INLINE void add_taps(const Row& r, Start (&at)[kVectors], Floats (&sum)[kVectors][kPixels]) {
  Ints index = r.index;
  for (std::int64_t i = 0; i < r.ins; ++i, index += 1) {
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v)
      add_channel<kPermuted, kTaps, kPixels, kStep>(r, at[v], i, index, sum[v]);
  }
  for (int v = 0; v < kVectors; ++v)
    at[v].from += kTaps * r.pixel, at[v].weight += kTaps * r.weight_tap;
}

template <int kPixels>
ENGINE_INLINE void write_tile(const Row& r, const VectorRow& v, std::int64_t first,
                              const Floats (&sum)[kPixels]) {
  const std::int64_t count = smaller(kPixels, r.results - first);
  const auto write = [&](auto lanes) {
    ENGINE_UNROLL
    for (int t = 0; t < kPixels; ++t)
      if (t < count) {
        Stored* pixel = v.to + (first + t) * r.to_step;
        lanes.store_to(pixel, r.add ? lanes.load_from(pixel) + sum[t] : sum[t]);
      }
  };
  v.lanes == kWidth ? write(AllLanes{}) : write(SomeLanes{v.lanes});
}

template <bool kPermuted, int kVectors, int kPixels, int kStep>
ENGINE_INLINE void tile(const Row& r, std::int64_t first) {
  Floats sum[kVectors][kPixels];
  Start row[kVectors];
  const std::int64_t count = smaller(kPixels, r.results - first);
  ENGINE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const VectorRow& of = r.of[v];
    const Floats bias = of.bias == nullptr ? zero() : load_partial(of.bias, of.lanes);
    ENGINE_UNROLL
    for (int t = 0; t < kPixels; ++t) sum[v][t] = bias;
    // The results are often in no cache: their lines arrive during the sums.
    for (std::int64_t t = 0; t < count; ++t)
      __builtin_prefetch(of.to + (first + t) * r.to_step, 1, 3);
    row[v] = {of.from + first * r.step * (kPermuted ? kWidth : r.pixel), of.weight};
  }
  for (std::int64_t a = 0; a < r.rows; ++a) {
    Start at[kVectors];
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v)
      at[v] = {row[v].from + a * r.from_row, row[v].weight + a * r.weight_row};
    std::int64_t left = r.taps;
    for (; left >= kTaps; left -= kTaps) add_taps<kPermuted, kTaps, kStep>(r, at, sum);
    if (left == 2) add_taps<kPermuted, 2, kStep>(r, at, sum);
    if (left == 1) add_taps<kPermuted, 1, kStep>(r, at, sum);
  }
  ENGINE_UNROLL
  for (int v = 0; v < kVectors; ++v) write_tile(r, r.of[v], first, sum[v]);
}

template <bool kPermuted, int kStep>
void sum_row(const Row& r) {
  for (std::int64_t first = 0; first < r.results;) {
    const int width = tile_width(r.results - first);
    if (width == kNarrow) {
      tile<kPermuted, 1, kNarrow, kStep>(r, first);
    } else if (width == kMiddle) {
      tile<kPermuted, 1, kMiddle, kStep>(r, first);
    } else {
      tile<kPermuted, 1, kWidest, kStep>(r, first);
    }
    first += width;
  }
}
// Two vectors at once, of at most kPairWidth results: one would have too few sums to occupy the
// multiply-add units.
template <bool kPermuted, int kStep>
void sum_pair(const Row& r) {
  r.results <= kNarrow ? tile<kPermuted, 2, kNarrow, kStep>(r, 0)
                       : tile<kPermuted, 2, kPairWidth, kStep>(r, 0);
}

using RowLoop = void (*)(const Row& row);
template <bool kPermuted>
RowLoop loop_of(std::int64_t step, bool pair) {
  if (step == 1) return pair ? sum_pair<kPermuted, 1> : sum_row<kPermuted, 1>;
  if (step == 2) return pair ? sum_pair<kPermuted, 2> : sum_row<kPermuted, 2>;
  return pair ? sum_pair<kPermuted, 0> : sum_row<kPermuted, 0>;
}
inline RowLoop loop_for(bool permuted, std::int64_t step, bool pair) {
  return kCanPermute && permuted ? loop_of<kCanPermute>(step, pair) : loop_of<false>(step, pair);
}

}  // namespace group_sums

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
