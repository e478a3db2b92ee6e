// Which tile a convolution's product gets, and into how many parts the sum over its depth is cut:
// the cheapest by a rough model of a device with 132 processors. Reasoned, not measured.
//
// A tile of 128 x 128 reads least from L2 and runs 8 warps, two of it fit a processor (128
// registers a thread, 75 KiB of shared memory); 128 x 64 has the same 64 x 32 a warp, 4 warps,
// three fit; 64 x 64 has 32 x 32 a warp, so more reads of shared memory for the same flops, 4
// warps, four fit. What decides is how many blocks the busiest processor gets. All images' pixels
// fill tiles together, but maps of 4 x 4 have few (2048 of 128 images; 8 x 8 as few of 32): there
// the small tile wins although it is the slower one. With more pixels the large one does, with 64
// columns or fewer the one between. Processors with fewer than 16 warps hide less latency.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/launch_grid.h"

namespace engine::ops::cuda {

enum class TileChoice { kLarge, kTall, kSmall };

struct TileFacts {
  std::int64_t m, n;
  int warps, resident;  // of a block; blocks of a processor
  double rate;          // compared with the large tile's
};
inline constexpr std::array<TileFacts, 3> kTensorTiles{
    {{128, 128, 8, 2, 1.0}, {128, 64, 4, 3, 0.95}, {64, 64, 4, 4, 0.75}}};
// In float32 arithmetic, where there is none between the large and the small one.
inline constexpr std::array<TileFacts, 3> kSimtTiles{
    {{128, 128, 8, 2, 1.0}, {}, {64, 64, 8, 3, 0.8}}};

// A product [rows, depth] x [depth, columns].
struct ProductSize {
  std::int64_t rows, columns, depth;
};
struct ProductPlan {
  TileChoice tile = TileChoice::kSmall;
  std::int64_t parts = 1;  // of the depth
};

// How products are computed, and the multiplications a microsecond of one processor in its best
// case.
struct ProductKind {
  bool tensor = false;
  double rate = 0.2e6;

  ProductKind(DType dtype, Products products) {
    if (dtype == DType::kF32 && products == Products::kF32) return;
    tensor = true;
    rate = dtype != DType::kF32          ? 2.3e6
           : products == Products::kTf32 ? 1.1e6
                                         : 1.5e6;  // the last: halves that are read as floats
  }
  const TileFacts& facts(TileChoice choice) const {
    return (tensor ? kTensorTiles : kSimtTiles)[static_cast<std::size_t>(choice)];
  }
};

// Microseconds, roughly.
inline double product_time(const ProductSize& size, const TileFacts& tile, std::int64_t parts,
                           double rate) {
  const std::int64_t blocks =
                         divide_up(size.rows, tile.m) * divide_up(size.columns, tile.n) * parts,
                     each = divide_up(blocks, 132);
  const std::int64_t warps = std::min<std::int64_t>(each, tile.resident) * tile.warps;
  const double busy = warps >= 16 ? 1.0 : warps >= 8 ? 0.85 : 0.6;
  constexpr double kStartAndEnd =
      96;  // what filling the stages and writing the results cost, as depth
  const double depth = static_cast<double>(divide_up(size.depth, parts)) + kStartAndEnd;
  const double product =
      static_cast<double>(each * tile.m * tile.n) * depth / (rate * tile.rate * busy);
  // Parts are written and read again at about 2.5 TB/s, by one more launch.
  return parts == 1
             ? product
             : product + 3 + static_cast<double>(size.rows * size.columns * parts) * 8 / 2.5e6;
}

// At most `most_parts`.
inline ProductPlan plan_product(const ProductSize& size, std::int64_t most_parts,
                                const ProductKind& kind) {
  ProductPlan best;
  double best_time = -1;
  for (const TileChoice tile : {TileChoice::kLarge, TileChoice::kTall, TileChoice::kSmall}) {
    if (kind.facts(tile).m == 0) continue;
    for (const std::int64_t parts :
         {1,  2,  3,  4,  5,  6,  8,  10,  12,  14,  16,  20,  24,  28,
          32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 384, 512}) {
      if (parts > most_parts) break;
      const double time = product_time(size, kind.facts(tile), parts, kind.rate);
      if (best_time >= 0 && time >= best_time) continue;
      best_time = time;
      best = {tile, parts};
    }
  }
  return best;
}

// The most parts that the sum over `depth` pixels of a gradient with `count` weights is cut into;
// never fewer for a larger depth. No part is shorter than 512 pixels, and all of them have at most
// 64 MiB.
inline std::int64_t most_weight_parts(std::int64_t count, std::int64_t depth) {
  const std::int64_t room = std::max<std::int64_t>(1, (std::int64_t{16} << 20) / count);
  return std::max<std::int64_t>(1, std::min({std::int64_t{512}, room, divide_up(depth, 512)}));
}

}  // namespace engine::ops::cuda
