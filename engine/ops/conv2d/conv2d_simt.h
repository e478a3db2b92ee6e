// Convolution's product in float32 arithmetic: 256 threads as 16 x 16, each with kM / 16 rows and
// kN / 16 columns in registers.
#pragma once

#include "engine/ops/conv2d/conv2d_product.h"

namespace engine::ops::cuda {

template <class TileShape, Lines kLinesA, Lines kLinesB>
class SimtProduct {
 public:
  using Storage = float;
  using Shape = TileShape;
  static constexpr int kThreads = Shape::kThreads, kResident = Shape::kResident,
                       kDepth = kStageDepth<float>, kStages = kProductStages;
  // Four floats between lines: eight lanes that read 16 bytes of eight lines each meet all 32
  // banks.
  using A = OperandTile<float, kLinesA, Shape::kM, kDepth, 4, kThreads>;
  using B = OperandTile<float, kLinesB, Shape::kN, kDepth, 4, kThreads>;
  static constexpr std::size_t kSharedBytes =
      kStages * (A::kElements + B::kElements) * sizeof(float);
  static_assert(kThreads == 256);

  __device__ __forceinline__ SimtProduct() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums_[i][j] = 0;
  }

  __device__ __forceinline__ void multiply(const float* a, const float* b) {
    const int row = static_cast<int>(threadIdx.x) / kSide,
              column = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll 1
    for (int k = 0; k < kDepth; k += kTogether) {
      float from_a[kRows][kTogether], from_b[kColumns][kTogether];
      read<A>(a, row, k, from_a);
      read<B>(b, column, k, from_b);
#pragma unroll
      for (int e = 0; e < kTogether; ++e)
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            sums_[i][j] = fmaf(from_a[i][e], from_b[j][e], sums_[i][j]);
    }
  }

  // Calls put(row, column, values) with rows and columns of the tile.
  template <class Put>
  __device__ __forceinline__ void finish(float*, const Put& put) const {
    const int row = static_cast<int>(threadIdx.x) / kSide,
              column = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if constexpr (B::kAlong) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const float value[1] = {sums_[i][j]};
          put(place<A>(row, i), place<B>(column, j), value);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kColumns; j += 4) {
          const float values[4] = {sums_[i][j], sums_[i][j + 1], sums_[i][j + 2], sums_[i][j + 3]};
          put(place<A>(row, i), place<B>(column, j), values);
        }
      }
    }
  }

 private:
  static constexpr int kSide = 16, kTogether = 2, kRows = Shape::kM / kSide,
                       kColumns = Shape::kN / kSide;

  struct alignas(kTogether * sizeof(float)) Depths {
    float at[kTogether];
  };

  // Row or column `i` of thread `t`: neighbours where they are read together.
  template <class Operand>
  static __device__ __forceinline__ int place(int t, int i) {
    return Operand::kAlong ? t + i * kSide : 4 * t + i % 4 + i / 4 * (4 * kSide);
  }
  template <class Operand, int kCount>
  static __device__ __forceinline__ void read(const float* tile, int t, int k,
                                              float (&to)[kCount][kTogether]) {
    if constexpr (Operand::kAlong) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Depths piece =
            *reinterpret_cast<const Depths*>(tile + place<Operand>(t, i) * Operand::kPitch + k);
#pragma unroll
        for (int e = 0; e < kTogether; ++e) to[i][e] = piece.at[e];
      }
    } else {
#pragma unroll
      for (int e = 0; e < kTogether; ++e)
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const Packed<float> piece =
              load_packed(tile + (k + e) * Operand::kPitch + place<Operand>(t, i));
#pragma unroll
          for (int j = 0; j < 4; ++j) to[i + j][e] = piece.at[j];
        }
    }
  }

  float sums_[kRows][kColumns];
};

}  // namespace engine::ops::cuda
