// What one warp multiplies of a stage on tensor cores (mma.sync, sm_80 and later), with f32 sums.
#pragma once

#include "engine/ops/device/tensor_core.h"
#include "engine/ops/gemm/gemm_shared_tile.h"

namespace engine::ops::cuda {

// Registers of an operand for one mma step: part[i][h] has lines 8 i + g and the half h of the
// step's k, as B's registers want it; A's four are two neighbours (tensor_core.h).
template <class Storage, Products kProducts, class Tile, int kLines>
struct MmaLines {
  using Half = std::conditional_t<kProducts == Products::kBF16, bf16, f16>;
  static constexpr int kHalfDepth = kProducts == Products::kTf32 ? 4 : 8;

  static __device__ __forceinline__ void load(std::uint32_t (&part)[kLines / 8][2],
                                              const Storage* tile, int first, int depth) {
    const int g = lane_index() / 4, t = lane_index() % 4;
    if constexpr (!Tile::kHalvedFloats && (sizeof(Storage) == 2 || Tile::kByDepth)) {
      // Four matrices at once: lanes 8 q + r give row r of matrix q, of lines i + q / 2 and half q
      // % 2.
      const int q = lane_index() / 8, r = lane_index() % 8;
#pragma unroll
      for (int i = 0; i < kLines / 8; i += 2) {
        std::uint32_t four[4];
        const int line = first + (i + q / 2) * 8, from = depth + q % 2 * kHalfDepth;
        if constexpr (Tile::kByDepth)
          ldmatrix_x4(four, tile + Tile::at(line + r, from));
        else
          ldmatrix_x4_trans(four, tile + Tile::at(line, from + r));
#pragma unroll
        for (int j = 0; j < 4; ++j)
          part[i + j / 2][j % 2] = kProducts == Products::kTf32
                                       ? __float_as_uint(round_to_tf32(__uint_as_float(four[j])))
                                       : four[j];
      }
    } else if constexpr (kProducts == Products::kTf32) {
#pragma unroll
      for (int i = 0; i < kLines / 8; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          part[i][h] =
              __float_as_uint(round_to_tf32(tile[Tile::at(first + i * 8 + g, depth + h * 4 + t)]));
    } else {
#pragma unroll
      for (int i = 0; i < kLines / 8; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int line = first + i * 8 + g, from = depth + h * 8 + 2 * t;
          if constexpr (Tile::kByDepth) {
            const Pair two = *reinterpret_cast<const Pair*>(tile + Tile::at(line, from));
            part[i][h] = pack_rounded<Half>(two.low, two.high);
          } else {
            part[i][h] =
                pack_rounded<Half>(tile[Tile::at(line, from)], tile[Tile::at(line, from + 1)]);
          }
        }
    }
  }

 private:
  struct alignas(8) Pair {
    float low, high;
  };
};

template <Products kProducts>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4],
                                    const std::uint32_t (&b)[2]) {
  if constexpr (kProducts == Products::kTf32)
    mma_m16n8k8_tf32(c, a, b);
  else if constexpr (kProducts == Products::kBF16)
    mma_m16n8k16_bf16(c, a, b);
  else
    mma_m16n8k16_f16(c, a, b);
}

// kRows x kColumns of C, from line `row` of A's tile and line `column` of B's.
template <class Storage, Products kProducts, class TileA, class TileB, int kRows, int kColumns>
class MmaWarp {
 public:
  __device__ __forceinline__ void multiply(const Storage* a, const Storage* b, int row,
                                           int column) {
    constexpr int kStep = kProducts == Products::kTf32 ? 8 : 16;
#pragma unroll
    for (int depth = 0; depth < TileA::kDepth; depth += kStep) {
      std::uint32_t part_a[kRows / 8][2], part_b[kColumns / 8][2];
      MmaLines<Storage, kProducts, TileA, kRows>::load(part_a, a, row, depth);
      MmaLines<Storage, kProducts, TileB, kColumns>::load(part_b, b, column, depth);
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i) {
        const std::uint32_t four[4] = {part_a[2 * i][0], part_a[2 * i + 1][0], part_a[2 * i][1],
                                       part_a[2 * i + 1][1]};
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) mma<kProducts>(sums_[i][j], four, part_b[j]);
      }
    }
  }
  // The sums to `to`, row-major with an even `pitch`.
  __device__ __forceinline__ void put(float* to, int pitch) const {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<Pair*>(to + (i * 16 + h * 8 + g) * pitch + j * 8 + 2 * t) = {
              sums_[i][j][2 * h], sums_[i][j][2 * h + 1]};
  }

 private:
  struct alignas(8) Pair {
    float low, high;
  };
  float sums_[kRows / 16][kColumns / 8][4] = {};
};

}  // namespace engine::ops::cuda
