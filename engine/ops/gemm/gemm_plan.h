// How a matrix product is cut into blocks of threads: the tile of C that a block computes, and into
// how many parts the sum over k is split so that products with few tiles still fill a device.
// Follows from the shape alone, so that sums always run in the same order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/device/launch_grid.h"

namespace engine::ops::cuda {

struct GemmPlan {
  int tile = 0;                // 128, 64 or 32: C is computed in squares of this size
  int splits = 1;              // of k; each part's sums go to the workspace when there are several
  std::int64_t split_depth{};  // k of a part: a multiple of a stage's depth
  bool warpgroup = false;      // by the warpgroup instructions of sm_90a (gemm_wgmma.h)
};

// k that a stage of the pipeline holds: 64 bytes of a line.
constexpr int gemm_stage_depth(std::size_t storage_bytes) {
  return static_cast<int>(64 / storage_bytes);
}

constexpr std::int64_t gemm_tiles(std::int64_t m, std::int64_t n, int tile) {
  return divide_up(m, tile) * divide_up(n, tile);
}

constexpr GemmPlan gemm_plan_of(std::int64_t k, int stage_depth, int tile, std::int64_t splits) {
  const std::int64_t stages = std::max<std::int64_t>(divide_up(k, stage_depth), 1);
  const std::int64_t each = divide_up(stages, splits);
  return {tile, static_cast<int>(divide_up(stages, each)), each * stage_depth};
}

constexpr GemmPlan warpgroup_plan_of(std::int64_t k, std::int64_t splits) {
  GemmPlan plan = gemm_plan_of(k, 64, 128, splits);
  plan.warpgroup = true;
  return plan;
}

// The largest tile whose blocks fill the device, with the help of splits where k is long.
constexpr GemmPlan plan_gemm(std::int64_t m, std::int64_t n, std::int64_t k, int stage_depth) {
  constexpr std::int64_t kProcessors = 132;            // of an H100
  constexpr std::int64_t kResident = 2 * kProcessors;  // two blocks each
  constexpr std::int64_t kLeastStages = 8;             // of a part: fewer do not fill the pipeline
  const std::int64_t stages = divide_up(k, stage_depth), narrow = std::min(m, n);
  const auto splits = [&](int tile) {
    return std::max<std::int64_t>(
        1, std::min({kResident / std::max<std::int64_t>(gemm_tiles(m, n, tile), 1),
                     stages / kLeastStages, std::int64_t{32}}));
  };
  for (const int tile : {128, 64}) {
    if (narrow <= tile / 2) continue;
    const std::int64_t tiles = gemm_tiles(m, n, tile);
    if (tiles >= kProcessors) return gemm_plan_of(k, stage_depth, tile, 1);
    if (tiles * splits(tile) >= kProcessors)
      return gemm_plan_of(k, stage_depth, tile, splits(tile));
  }
  return gemm_plan_of(k, stage_depth, 32, gemm_tiles(m, n, 32) >= kProcessors ? 1 : splits(32));
}

// Bytes of f32 workspace for the parts' sums.
constexpr std::int64_t gemm_workspace_bytes(const GemmPlan& plan, std::int64_t m, std::int64_t n) {
  return plan.splits > 1 ? plan.splits * m * divide_up(n, 8) * 8 * 4 : 0;
}
// The most that any product with 1..m rows, n columns and 1..k terms needs.
constexpr std::int64_t most_gemm_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k,
                                                 int stage_depth) {
  std::int64_t most = 0;
  // Tiles end at multiples of 32 rows; the need grows with the rows between them.
  for (std::int64_t rows = std::min<std::int64_t>(m, 32); rows > 0;
       rows = rows < m ? std::min(m, rows + 32) : 0) {
    const GemmPlan plan = plan_gemm(rows, n, k, stage_depth);
    most = std::max(most, gemm_workspace_bytes(plan, rows, n));
    if (rows >= 132 * 128) break;  // no more splits from here on
  }
  return most;
}

}  // namespace engine::ops::cuda
