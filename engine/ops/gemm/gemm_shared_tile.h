// An operand's tile in shared memory: `Lines` rows of A (or columns of B) by a stage's depth of k,
// in the order of global memory, and the division of its copies among a block's threads.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

// Element (line, depth) is at line * kPitch + depth (kByDepth: k is contiguous), or at depth *
// kPitch + line.
//
// kPitch keeps the loads of the multiplication free of bank conflicts. 16 bytes more than a power
// of two suffice for ldmatrix, for reads of 16 bytes, and for pairs of floats one row apart. 32
// bytes more are needed for 32 x 1 reads along lines and for float2.
template <class Storage, Products kProducts, bool kByDepth_, int kLines_>
struct SharedTile {
  static constexpr bool kByDepth = kByDepth_;
  static constexpr int kLines = kLines_;
  static constexpr int kDepth = gemm_stage_depth(sizeof(Storage));
  static constexpr int kChunk = static_cast<int>(16 / sizeof(Storage));  // elements per copy
  static constexpr bool kHalvedFloats =
      sizeof(Storage) == 4 && (kProducts == Products::kF16 || kProducts == Products::kBF16);
  static constexpr bool kWide =
      kByDepth ? kHalvedFloats : sizeof(Storage) == 4 && kProducts == Products::kTf32;
  static constexpr int kPitch = (kByDepth ? kDepth : kLines) + kChunk * (kWide ? 2 : 1);
  static constexpr int kElements = kPitch * (kByDepth ? kLines : kDepth);
  static constexpr int kRowChunks = (kByDepth ? kDepth : kLines) / kChunk;

  static constexpr __device__ int at(int line, int depth) {
    return kByDepth ? line * kPitch + depth : depth * kPitch + line;
  }
};

// The part of a tile's copies that one thread of `kThreads` makes: kCount chunks of 16 bytes, which
// start at the same depth (kByDepth) or at the same line.
template <class Tile, int kThreads>
struct CopySlots {
  static constexpr int kCount = Tile::kLines * Tile::kDepth / Tile::kChunk / kThreads;
  static_assert(kCount * kThreads * Tile::kChunk == Tile::kLines * Tile::kDepth);
  static_assert(kThreads % Tile::kRowChunks == 0);
  static constexpr int kOwnLines = Tile::kByDepth ? kCount : 1,
                       kOwnDepths = Tile::kByDepth ? 1 : kCount;

  static __device__ __forceinline__ int line(int slot) {
    return Tile::kByDepth ? across() + slot * kStep : along();
  }
  static __device__ __forceinline__ int depth(int slot) {
    return Tile::kByDepth ? along() : across() + slot * kStep;
  }

 private:
  static constexpr int kStep = kThreads / Tile::kRowChunks;  // rows of the tile between two slots
  static __device__ __forceinline__ int along() {
    return static_cast<int>(threadIdx.x) % Tile::kRowChunks * Tile::kChunk;
  }
  static __device__ __forceinline__ int across() {
    return static_cast<int>(threadIdx.x) / Tile::kRowChunks;
  }
};

}  // namespace engine::ops::cuda
