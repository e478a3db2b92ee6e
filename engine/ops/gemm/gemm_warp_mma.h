// The product of one warp for one stage on tensor cores (mma.sync, sm_80 and later), with f32 sums.
#pragma once

#include "engine/ops/device/tensor_core.h"
#include "engine/ops/gemm/gemm_shared_tile.h"

namespace engine::ops::cuda {

// The registers of 16 lines of an operand for one mma step, in the order of the instruction, so
// that none is moved: to[i] has lines 8 * group(i) + g and the half half(i) of the step's k
// (tensor_core.h). The four registers of A are one operand, those of B are two.
template <class Storage, Products kProducts, class Tile, bool kOfA>
struct MmaLines {
  using Half = std::conditional_t<kProducts == Products::kBF16, bf16, f16>;
  static constexpr int kHalfDepth = kProducts == Products::kTf32 ? 4 : 8;

  static __device__ __forceinline__ void load(std::uint32_t (&to)[4], const Storage* tile,
                                              int first, int depth) {
    const int g = lane_index() / 4, t = lane_index() % 4;
    if constexpr (!Tile::kHalvedFloats && (sizeof(Storage) == 2 || Tile::kByDepth)) {
      // Loads four matrices at once: lanes 8 q + r give row r of matrix q.
      const int q = lane_index() / 8, r = lane_index() % 8;
      const int line = first + group(q) * 8, from = depth + half(q) * kHalfDepth;
      if constexpr (Tile::kByDepth)
        ldmatrix_x4(to, tile + Tile::at(line + r, from));
      else
        ldmatrix_x4_trans(to, tile + Tile::at(line, from + r));
      if constexpr (kProducts == Products::kTf32) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = __float_as_uint(round_to_tf32(__uint_as_float(to[i])));
      }
    } else if constexpr (kProducts == Products::kTf32) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = __float_as_uint(
            round_to_tf32(tile[Tile::at(first + group(i) * 8 + g, depth + half(i) * 4 + t)]));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int line = first + group(i) * 8 + g, from = depth + half(i) * 8 + 2 * t;
        if constexpr (Tile::kByDepth) {
          const Pair two = *reinterpret_cast<const Pair*>(tile + Tile::at(line, from));
          to[i] = pack_rounded<Half>(two.low, two.high);
        } else {
          to[i] = pack_rounded<Half>(tile[Tile::at(line, from)], tile[Tile::at(line, from + 1)]);
        }
      }
    }
  }

 private:
  struct alignas(8) Pair {
    float low, high;
  };
  static __device__ __forceinline__ int group(int i) { return kOfA ? i % 2 : i / 2; }
  static __device__ __forceinline__ int half(int i) { return kOfA ? i / 2 : i % 2; }
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
      std::uint32_t part_a[kRows / 16][4], part_b[kColumns / 16][4];
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i) LinesA::load(part_a[i], a, row + i * 16, depth);
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) LinesB::load(part_b[j], b, column + j * 16, depth);
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          const std::uint32_t two[2] = {part_b[j / 2][j % 2 * 2], part_b[j / 2][j % 2 * 2 + 1]};
          mma<kProducts>(sums_[i][j], part_a[i], two);
        }
    }
  }
  // Stores the sums to `to`, row-major with an even `pitch`.
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
  using LinesA = MmaLines<Storage, kProducts, TileA, true>;
  using LinesB = MmaLines<Storage, kProducts, TileB, false>;
  struct alignas(8) Pair {
    float low, high;
  };
  float sums_[kRows / 16][kColumns / 8][4] = {};
};

}  // namespace engine::ops::cuda
