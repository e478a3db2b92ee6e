// Divides a matrix product into thread blocks: it chooses the tile of C that a block computes, and
// the number of parts into which the sum over k is split, so that few tiles still fill a device. It
// takes the cheapest plan by a rough model of a device. The plan depends only on the shape and the
// device (its number of multiprocessors, and how many blocks one of them holds), so that sums on a
// device always have the same order. On an H100 its choices take 1.2 % longer than the best plan in
// the mean, of 70 products of bf16 by mma.sync; by wgmma 1.5 %, of 47 (2026-11-27).
//
// A tile of 128 x 128 reads least from L2, and two blocks of 8 warps fit a multiprocessor of 9.0.
// 128 x 64 has the same 32 x 64 per warp, 4 warps, and three fit. 64 x 64 has 32 x 32 per warp, so
// it reads more shared memory for the same flops, and four fit. 32 x 32 has 16 x 32, for small
// products. On other devices fewer fit, and the runtime is queried: on 8.6 one block of each large
// tile. The blocks on the busiest multiprocessor decide, in rounds of as many as it holds: with
// many tiles the large one is best, with 64 columns or fewer the middle one, with few tiles the
// small ones although they are slower. Multiprocessors with fewer than 16 warps hide less latency.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/launch_grid.h"

namespace engine::ops::cuda {

// A tile, and the grid of warps that share it. kResident is the number of blocks per multiprocessor
// for which registers are bounded; a device may have shared memory for fewer (residents_of()).
template <int kRows_, int kColumns_, int kDown, int kAcross_, int kResident_>
struct GemmTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kAcross = kAcross_,
                       kResident = kResident_, kWarps = kDown * kAcross, kThreads = kWarps * 32;
  static constexpr int kWarpRows = kRows / kDown, kWarpColumns = kColumns / kAcross;
};
using GemmTile128 = GemmTile<128, 128, 4, 2, 2>;
using GemmTile128x64 = GemmTile<128, 64, 4, 1, 3>;
using GemmTile64 = GemmTile<64, 64, 2, 2, 4>;
using GemmTile32 = GemmTile<32, 32, 2, 1, 8>;

struct GemmPlan {
  int tile = 0;                // rows of C that a block computes: 128, 64 or 32; 0: no plan
  int columns = 0;             // the same number, or 64 for 128 rows
  int splits = 1;              // parts of k; if there are several, their sums go to the workspace
  std::int64_t split_depth{};  // k per part: a multiple of a stage's depth
  bool warpgroup = false;      // by the warpgroup instructions of sm_90a (gemm_warpgroup.h); the
                               // tile has 128 rows, and operands are stored in 16 bits
};

struct GemmShape {
  std::int64_t m, n, k;
};

// The k of one pipeline stage: 128 bytes of a line.
constexpr int gemm_stage_depth(std::size_t storage_bytes) {
  return static_cast<int>(128 / storage_bytes);
}

// The arithmetic for operands of one storage type, and the multiplications per microsecond of one
// multiprocessor in the best case.
struct GemmKind {
  int stage_depth;
  bool tensor, short_storage;
  double rate;

  GemmKind(DType storage, Products products)
      : stage_depth(gemm_stage_depth(size_of(storage))),
        tensor(storage != DType::kF32 || products != Products::kF32),
        short_storage(size_of(storage) == 2),
        rate(!tensor                       ? 0.2e6
             : storage != DType::kF32      ? 1.2e6  // measured: 320 TFLOP/s on an H100
             : products == Products::kTf32 ? 0.57e6
                                           : 0.78e6) {
  }  // the last: 16-bit products of operands stored as f32
};

constexpr std::int64_t gemm_tiles(std::int64_t m, std::int64_t n, const GemmPlan& plan) {
  return divide_up(m, plan.tile) * divide_up(n, plan.columns);
}

// `columns` 0: the same number as rows.
constexpr GemmPlan gemm_plan_of(std::int64_t k, int stage_depth, int tile, std::int64_t splits,
                                int columns = 0) {
  const std::int64_t stages = std::max<std::int64_t>(divide_up(k, stage_depth), 1);
  const std::int64_t each = divide_up(stages, splits);
  return {tile, columns > 0 ? columns : tile, static_cast<int>(divide_up(stages, each)),
          each * stage_depth};
}

struct GemmTileFacts {
  int rows, columns, warps;
  double rate;  // relative to the large tile's, on tensor cores
  double f32_rate;
};
template <class Tile>
constexpr GemmTileFacts facts_of(double rate, double f32_rate) {
  return {Tile::kRows, Tile::kColumns, Tile::kWarps, rate, f32_rate};
}
inline constexpr GemmTileFacts kGemmTiles[] = {
    facts_of<GemmTile128>(1, 1), facts_of<GemmTile128x64>(0.95, 0.95),
    facts_of<GemmTile64>(0.75, 0.8), facts_of<GemmTile32>(0.45, 0.5)};

// The number of blocks of each of kGemmTiles that a multiprocessor holds at once; 0: a block needs
// more shared memory than the device has for one (before 8.0).
using GemmResidents = std::array<int, std::size(kGemmTiles)>;
inline constexpr GemmResidents kBoundedResidents = {GemmTile128::kResident,
                                                    GemmTile128x64::kResident,
                                                    GemmTile64::kResident, GemmTile32::kResident};

// The properties of a device that a plan depends on. Residents never exceed the number for which
// registers are bounded: otherwise plans, and with them bits, would depend on the compiler's
// register allocation.
struct GemmDevice {
  int processors;
  GemmResidents residents;
  constexpr GemmDevice(int processor_count, const GemmResidents& held = kBoundedResidents)
      : processors(processor_count), residents(held) {}
};

// The approximate time of a product in microseconds. `resident` is the number of blocks of the tile
// that a multiprocessor holds.
inline double gemm_time(const GemmShape& shape, const GemmKind& kind, const GemmTileFacts& tile,
                        std::int64_t splits, int processors, int resident) {
  const std::int64_t blocks =
      divide_up(shape.m, tile.rows) * divide_up(shape.n, tile.columns) * splits;
  const std::int64_t each = divide_up(blocks, processors), rest = each % resident;
  // Returns the share of the rate that `blocks_at_once` blocks reach.
  const auto share = [&](std::int64_t blocks_at_once) {
    const std::int64_t warps = blocks_at_once * tile.warps;
    return warps >= 16 ? 1.0 : warps >= 8 ? 0.85 : warps >= 4 ? 0.6 : 0.35;
  };
  const double rounds = static_cast<double>(each - rest) / share(resident) +
                        (rest > 0 ? static_cast<double>(rest) / share(rest) : 0);
  constexpr double kStartAndEnd = 96;  // cost of filling the stages and writing C, as k
  const double depth = static_cast<double>(divide_up(shape.k, splits)) + kStartAndEnd;
  const double rate = kind.rate * (kind.tensor ? tile.rate : tile.f32_rate);
  const double product = rounds * tile.rows * tile.columns * depth / rate;
  if (splits == 1) return product;
  // Parts are written and read again at about 2.5 TB/s, with one more launch.
  return product + 3 + static_cast<double>(shape.m * shape.n * splits) * 8 / 2.5e6;
}

// The maximum number of parts of k: each has at least 8 stages, since fewer do not fill the
// pipeline.
constexpr std::int64_t max_gemm_splits(std::int64_t k, int stage_depth) {
  return std::clamp<std::int64_t>(k / stage_depth / 8, 1, 512);
}
// The maximum number of floats of all parts: four times two of the large tile's blocks per
// multiprocessor.
constexpr std::int64_t max_part_floats(int processors) {
  return std::int64_t{8} * 128 * 128 * processors;
}

// A tile and a number of parts for a measurement, in place of those that the model would choose.
struct GemmCutWish {
  int rows = 0, columns = 0;  // one of kGemmTiles; 0, or a tile without residents: no override
  std::int64_t splits = 0;    // as close to it as k and the workspace allow
};

// `max_splits` is 1 if there is no workspace. REQUIRES: device.processors > 0.
inline GemmPlan plan_gemm(const GemmShape& shape, const GemmKind& kind, const GemmDevice& device,
                          std::int64_t max_splits = 512, const GemmCutWish& wish = {}) {
  const std::int64_t part = std::max<std::int64_t>(shape.m * divide_up(shape.n, 8) * 8, 1);
  max_splits = std::min({max_splits, max_gemm_splits(shape.k, kind.stage_depth),
                         max_part_floats(device.processors) / part});
  GemmPlan best;
  double best_time = -1;
  for (std::size_t i = 0; i < std::size(kGemmTiles); ++i) {
    const GemmTileFacts& tile = kGemmTiles[i];
    if (device.residents[i] == 0) continue;
    if (tile.rows == wish.rows && tile.columns == wish.columns) {
      const std::int64_t splits =
          std::clamp(wish.splits, std::int64_t{1}, std::max<std::int64_t>(max_splits, 1));
      return gemm_plan_of(shape.k, kind.stage_depth, tile.rows, splits, tile.columns);
    }
    for (std::int64_t splits = 1; splits == 1 || splits <= max_splits;
         splits += splits < 8 ? 1 : splits / 8) {
      const double time =
          gemm_time(shape, kind, tile, splits, device.processors, device.residents[i]);
      if (best_time >= 0 && time >= best_time) continue;
      best_time = time;
      best = gemm_plan_of(shape.k, kind.stage_depth, tile.rows, splits, tile.columns);
    }
  }
  return best;
}

// Whether plan_on_device() may use the warpgroup instructions of sm_90a, in all threads; by default
// it may.
void allow_warpgroup_products(bool on);

// plan_gemm() for the calling thread's device, by warpgroup instructions where the device and the
// storage have them, and with the calling thread's override (`engine bench kernels --cuts`).
// `residents` are those of the planned kernels on that device.
GemmPlan plan_on_device(const GemmShape& shape, const GemmKind& kind,
                        const GemmResidents& residents = kBoundedResidents,
                        std::int64_t max_splits = 512);
void wish_for_cut(const GemmCutWish& wish);
// The plan of the calling thread's last product; tile 0 after wish_for_cut().
GemmPlan last_cut();

// The bytes of the f32 workspace for the parts' sums.
constexpr std::int64_t gemm_workspace_bytes(const GemmPlan& plan, std::int64_t m, std::int64_t n) {
  return plan.splits > 1 ? plan.splits * m * divide_up(n, 8) * 8 * 4 : 0;
}
// The maximum that plan_gemm()'s plan needs for any product of up to this shape, on a device with
// up to `processors` multiprocessors.
constexpr std::int64_t max_gemm_workspace_bytes(const GemmShape& shape, int stage_depth,
                                                int processors) {
  const std::int64_t splits = max_gemm_splits(shape.k, stage_depth);
  if (splits == 1) return 0;
  return std::min(splits * shape.m * divide_up(shape.n, 8) * 8, max_part_floats(processors)) * 4;
}

}  // namespace engine::ops::cuda
