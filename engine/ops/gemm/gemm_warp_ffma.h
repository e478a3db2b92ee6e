// The product of one warp for one stage, in float32 arithmetic: each thread has a grid of sums in
// registers (4 x 8 threads per warp).
#pragma once

#include "engine/ops/gemm/gemm_shared_tile.h"

namespace engine::ops::cuda {

// The lines of an operand that one of kSpread adjacent threads in the warp processes, and their
// values, read 16 bytes at a time: adjacent threads read adjacent lines or adjacent groups of four
// lines, depending on which dimension is contiguous.
template <class Tile, int kCount, int kSpread>
struct FfmaLines {
  static_assert(kCount % 4 == 0);

  static __device__ __forceinline__ int line(int i, int place) {
    return Tile::kByDepth ? i * kSpread + place : i / 4 * 4 * kSpread + place * 4 + i % 4;
  }
  // to[d] = the value of this thread's line i at depth + d.
  template <int kSteps>
  static __device__ __forceinline__ void load_line(float (&to)[kSteps], const float* tile,
                                                   int place, int i, int depth) {
    struct alignas(4 * kSteps) Steps {
      float at[kSteps];
    };
    const Steps steps = *reinterpret_cast<const Steps*>(tile + Tile::at(line(i, place), depth));
#pragma unroll
    for (int d = 0; d < kSteps; ++d) to[d] = steps.at[d];
  }
  // to[i] = the values of all lines of this thread at one depth.
  static __device__ __forceinline__ void load_depth(float (&to)[kCount], const float* tile,
                                                    int place, int depth) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const Packed<float> four = load_packed(tile + Tile::at(line(i, place), depth));
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i + j] = four.at[j];
    }
  }
};

// kRows x kColumns of C, from line `row` of A's tile and line `column` of B's.
template <class TileA, class TileB, int kRows, int kColumns>
class FfmaWarp {
 public:
  __device__ __forceinline__ void multiply(const float* a, const float* b, int row, int column) {
    const int place_a = lane_index() / 8, place_b = lane_index() % 8;
    const float *lines_a = a + TileA::at(row, 0), *lines_b = b + TileB::at(column, 0);
#pragma unroll kUnroll
    for (int depth = 0; depth < TileA::kDepth; depth += kSteps) {
      float part_a[kSteps][kHigh];  // for B, only as much as is needed next
#pragma unroll
      for (int i = 0; i < kHigh && TileA::kByDepth; ++i) {
        float line[kSteps];
        LinesA::load_line(line, lines_a, place_a, i, depth);
#pragma unroll
        for (int d = 0; d < kSteps; ++d) part_a[d][i] = line[d];
      }
#pragma unroll
      for (int d = 0; d < kSteps && !TileA::kByDepth; ++d)
        LinesA::load_depth(part_a[d], lines_a, place_a, depth + d);
      if constexpr (TileB::kByDepth) {
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          float line[kSteps];
          LinesB::load_line(line, lines_b, place_b, j, depth);
#pragma unroll
          for (int d = 0; d < kSteps; ++d)
#pragma unroll
            for (int i = 0; i < kHigh; ++i) sums_[i][j] += part_a[d][i] * line[d];
        }
      } else {
#pragma unroll
        for (int d = 0; d < kSteps; ++d) {
          float part_b[kWide];
          LinesB::load_depth(part_b, lines_b, place_b, depth + d);
#pragma unroll
          for (int i = 0; i < kHigh; ++i)
#pragma unroll
            for (int j = 0; j < kWide; ++j) sums_[i][j] += part_a[d][i] * part_b[j];
        }
      }
    }
  }
  // Stores the sums to `to`, row-major with `pitch`.
  __device__ __forceinline__ void put(float* to, int pitch) const {
    const int place_a = lane_index() / 8, place_b = lane_index() % 8;
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
        to[LinesA::line(i, place_a) * pitch + LinesB::line(j, place_b)] = sums_[i][j];
  }

 private:
  static constexpr int kHigh = kRows / 4, kWide = kColumns / 8;
  // The k that is read at once, and the unrolling of the loop over it: sums and operands must fit
  // into the registers that two blocks per multiprocessor leave.
  static constexpr bool kAlike = TileA::kByDepth == TileB::kByDepth;
  static constexpr int kSteps = kAlike ? 4 : 2,
                       kUnroll = TileA::kByDepth || TileB::kByDepth ? 1 : 4;
  using LinesA = FfmaLines<TileA, kHigh, 4>;
  using LinesB = FfmaLines<TileB, kWide, 8>;
  float sums_[kHigh][kWide] = {};
};

}  // namespace engine::ops::cuda
