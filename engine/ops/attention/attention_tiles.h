// Products of tiles in shared memory on tensor cores for attention: rows of queries, keys, values
// or gradients, with a head's `kSize` elements each, of type M: bf16, f16, or float for TF32. For
// .cu files only.
//
// A warp owns 16 rows of one operand. With g = lane / 4 and t = lane % 4 it holds 16 x 8 results in
// four registers per lane: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
#pragma once

#include <type_traits>

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/async_copy.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/tensor_core.h"

namespace engine::ops::cuda {

inline constexpr int kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarp, kOwn = 16 * kMmaWarps;

template <class M, int kSize>
struct MmaTile {
  static constexpr int kPart = 16 / static_cast<int>(sizeof(M));  // elements in 16 bytes
  static constexpr int kDepth = 2 * kPart;  // elements of a row that one instruction processes
  static constexpr int kStride =
      kSize + kPart;  // no bank conflicts between eight rows' parts of one column
  static constexpr int kOther = mma_other_rows(kSize * static_cast<int>(sizeof(M)));
  static constexpr int kOwnElements = kOwn * kStride, kOtherElements = kOther * kStride;
};

template <class M>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4],
                                    const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<M, float>)
    mma_m16n8k8_tf32(c, a, b);
  else if constexpr (std::is_same_v<M, bf16>)
    mma_m16n8k16_bf16(c, a, b);
  else
    mma_m16n8k16_f16(c, a, b);
}

// Starts to copy `rows` rows to shared memory, of which `valid` exist; the others become zeros.
// They are available after commit_copies(), wait_copies() and a barrier. Rows of a type other than
// M are rounded and copied synchronously.
template <class M, int kSize, class T>
__device__ __forceinline__ void fetch_rows(const T* from, std::int64_t stride, int rows,
                                           std::int64_t valid, M* to) {
  constexpr int kEach = Packed<T>::kCount, kParts = kSize / kEach;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kParts; i += kMmaThreads) {
    const int r = i / kParts, c = i % kParts * kEach;
    M* target = to + r * MmaTile<M, kSize>::kStride + c;
    if constexpr (std::is_same_v<T, M> && !std::is_same_v<M, float>) {
      copy_async_16(target, from + (r < valid ? r * stride + c : 0), r < valid ? 16 : 0);
    } else {
      float value[kEach] = {};
      if (r < valid) load_floats<kEach>(from + r * stride + c, value);
      if constexpr (std::is_same_v<M, float>)
        for (int j = 0; j < kEach; ++j) value[j] = round_to_tf32(value[j]);
      store_floats<kEach>(target, value);
    }
  }
}

// products[n] = own . other's rows 8n to 8n + 7, over their whole length. `own` is the warp's 16
// rows.
template <class M, int kSize, int kTiles>
__device__ __forceinline__ void multiply_tiles(const M* own, const M* other,
                                               float (&products)[kTiles][4]) {
  using Tile = MmaTile<M, kSize>;
  const int row = lane_index() % 8, matrix = lane_index() / 8;
  const M* a_row = own + (matrix % 2 * 8 + row) * Tile::kStride + matrix / 2 * Tile::kPart;
  const M* b_row = other + row * Tile::kStride + matrix * Tile::kPart;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) products[n][i] = 0;
#pragma unroll
  for (int c = 0; c < kSize; c += 2 * Tile::kDepth) {
    std::uint32_t first[4], second[4];
    ldmatrix_x4(first, a_row + c);
    ldmatrix_x4(second, a_row + c + Tile::kDepth);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      std::uint32_t b[4];
      ldmatrix_x4(b, b_row + n * 8 * Tile::kStride + c);
      mma<M>(products[n], first, {b[0], b[1]});
      mma<M>(products[n], second, {b[2], b[3]});
    }
  }
}

// sums[n] += weights . columns 8n to 8n + 7 of other's rows. The weights are results of
// multiply_tiles(), rounded to M here. For TF32 the instruction's steps t and t + 4 represent the
// rows 2t and 2t + 1, so that results serve as operands without moving between lanes.
template <class M, int kSize, int kTiles>
__device__ __forceinline__ void add_tiles(const float (&weights)[kTiles][4], const M* other,
                                          float (&sums)[kSize / 8][4]) {
  using Tile = MmaTile<M, kSize>;
  const int lane = lane_index();
  if constexpr (std::is_same_v<M, float>) {
    const float* start = other + 2 * (lane % 4) * Tile::kStride + lane / 4;
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      const float(&w)[4] = weights[k];
      const std::uint32_t a[4] = {
          __float_as_uint(round_to_tf32(w[0])), __float_as_uint(round_to_tf32(w[2])),
          __float_as_uint(round_to_tf32(w[1])), __float_as_uint(round_to_tf32(w[3]))};
      const float* row = start + 8 * k * Tile::kStride;
#pragma unroll
      for (int n = 0; n < kSize / 8; ++n)
        mma<M>(sums[n], a,
               {__float_as_uint(row[8 * n]), __float_as_uint(row[Tile::kStride + 8 * n])});
    }
  } else {
    const M* start = other + lane % 16 * Tile::kStride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < kTiles / 2; ++k) {
      const float(&w)[4] = weights[2 * k];
      const float(&v)[4] = weights[2 * k + 1];
      const std::uint32_t a[4] = {pack_rounded<M>(w[0], w[1]), pack_rounded<M>(w[2], w[3]),
                                  pack_rounded<M>(v[0], v[1]), pack_rounded<M>(v[2], v[3])};
#pragma unroll
      for (int n = 0; n < kSize / 8; n += 2) {
        std::uint32_t b[4];
        ldmatrix_x4_trans(b, start + 16 * k * Tile::kStride + 8 * n);
        mma<M>(sums[n], a, {b[0], b[1]});
        mma<M>(sums[n + 1], a, {b[2], b[3]});
      }
    }
  }
}

// Stores rows g and g + 8 of the sums, times `factor`, in rows `first` + g and `first` + g + 8 of
// `to`, if these are below `end`.
template <int kSize, class T>
__device__ __forceinline__ void store_tiles(const float (&sums)[kSize / 8][4],
                                            const float (&factor)[2], std::int64_t first,
                                            std::int64_t end, std::int64_t stride, bool add,
                                            T* to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + lane_index() / 4 + 8 * half;
    if (row >= end) continue;
    T* start = to + row * stride + lane_index() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      float both[2] = {sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]};
      if (add) {
        float before[2];
        load_floats<2>(start + 8 * n, before);
        both[0] += before[0], both[1] += before[1];
      }
      store_floats<2>(start + 8 * n, both);
    }
  }
}

// Calls start(M{}, std::integral_constant<int, size>) for the head sizes that tensor cores support.
// T is the storage type of the operands.
template <class T, class Start>
void with_mma_tile(Products products, int size, Start start) {
  const auto sized = [&](auto multiplied) {
    if (size == 32) return start(multiplied, std::integral_constant<int, 32>{});
    if (size == 64) return start(multiplied, std::integral_constant<int, 64>{});
    start(multiplied, std::integral_constant<int, 128>{});
  };
  if constexpr (std::is_same_v<T, float>) {
    if (products == Products::kTf32) return sized(float{});
    products == Products::kBF16 ? sized(bf16{}) : sized(f16{});
  } else {
    sized(T{});
  }
}

}  // namespace engine::ops::cuda
