// Tiles for first layers, with 1 or 3 input channels and one vector of output channels: adjacent
// places on a row of the map. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/conv2d/conv2d_cpu.h"
#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// The operands, as in conv2d_cpu.cc: steps are kernel rows of taps of channels.
struct RowProduct {
  const float* packed;
  const std::int64_t* step;
  std::int64_t steps, columns;
};

// The number of places on a row of the result and in a tile; the tile's loop, or nullptr.
struct RowTiles {
  std::int64_t in_row, width;
  void (*run)(const RowProduct& p, const float* a, const TileOutputOf<Stored>& out);
};

// A tile: kPixels adjacent places x one vector of columns. The weights of a kernel row and channel
// stay in registers, and each element of the maps is loaded once for all the places that read it:
// one load per multiply-add would be the bottleneck.
template <int kPixels, int kTaps, int kChannels>
void row_tile(const RowProduct& p, const float* a, const TileOutputOf<Stored>& out) {
  constexpr int kRun = kTaps * kChannels;
  Floats sum[kPixels][1];
  ENGINE_UNROLL
  for (int i = 0; i < kPixels; ++i) start_row(sum, i, out.c + i * p.columns);
  const float* b = p.packed;
  for (std::int64_t step = 0; step < p.steps; step += kRun, b += kRun * kWidth) {
    const float* run = a + p.step[step];
    for (int c = 0; c < kChannels; ++c, ++run) {
      Floats weight[kTaps];
      ENGINE_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) weight[tap] = load(b + (tap * kChannels + c) * kWidth);
      ENGINE_UNROLL
      for (int i = 0; i < kPixels + kTaps - 1; ++i) {
        const Floats element = broadcast(run[i * kChannels]);
        ENGINE_UNROLL
        for (int tap = 0; tap < kTaps; ++tap)
          if (i >= tap && i - tap < kPixels)
            sum[i - tap][0] = add_products(sum[i - tap][0], element, weight[tap]);
      }
    }
  }
  finish_tile(sum, out, [c = out.c, stride = p.columns](int i) { return c + i * stride; });
}

// Two widths of tiles: the longer one if rows consist of whole tiles of it.
inline constexpr int kLongTile = kVectorBytes == 64 ? 14 : 6,
                     kShortTile = kVectorBytes == 64 ? 8 : 6;

template <int kTaps, int kChannels>
RowTiles row_tiles(std::int64_t in_row) {
  if (in_row % kLongTile == 0) return {in_row, kLongTile, row_tile<kLongTile, kTaps, kChannels>};
  return {in_row, kShortTile, row_tile<kShortTile, kTaps, kChannels>};
}

template <int kChannels>
RowTiles row_tiles_of(std::int64_t taps, std::int64_t in_row) {
  if (taps == 3) return row_tiles<3, kChannels>(in_row);
  if (taps == 5) return row_tiles<5, kChannels>(in_row);
  if (taps == 7) return row_tiles<7, kChannels>(in_row);
  return {};
}

// Returns the tiles of first layers with one vector of columns; all other layers, and rows shorter
// than a tile, have none.
inline RowTiles row_tiles_for(const ConvSizes& s, std::int64_t channels) {
  if (s.stride != 1 || s.out > kWidth || s.out_w < kShortTile) return {};
  if (channels == 1) return row_tiles_of<1>(s.kernel_w, s.out_w);
  if (channels == 3) return row_tiles_of<3>(s.kernel_w, s.out_w);
  return {};
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
