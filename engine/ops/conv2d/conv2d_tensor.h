// Convolution's product on tensor cores (mma.sync, sm_80 and later): warps share a block's tile as
// a grid, each has kWarpM x kWarpN of it in registers. Results pass through shared memory once, so
// that they leave in whole pieces of 16 bytes.
#pragma once

#include <type_traits>

#include "engine/ops/conv2d/conv2d_product.h"
#include "engine/ops/device/tensor_core.h"

namespace engine::ops::cuda {

struct alignas(8) FloatPair {
  float low, high;
};

// Operands of TF32: stored as floats. Depth of an instruction: 8.
struct Tf32Factors {
  using Storage = float;
  static constexpr int kDepth = 8;
  // Elements between lines, so that 8 lines meet all banks in the ways that they are read below.
  static constexpr int kPadAlong = 4, kPadAcross = 8;

  // Fragment of 16 rows of A from row `m` and depth `k` on.
  template <class Operand>
  static __device__ __forceinline__ void load_a(const float* tile, int m, int k,
                                                std::uint32_t (&to)[4]) {
    if constexpr (Operand::kAlong) {
      // Four floats are a row of an 8 x 8 matrix of 16-bit numbers.
      const int lane = lane_index();
      ldmatrix_x4(to, tile + (m + lane % 16) * Operand::kPitch + k + lane / 16 * 4);
    } else {
      const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = __float_as_uint(tile[(k + t + i / 2 * 4) * Operand::kPitch + m + g + i % 2 * 8]);
    }
    round(to);
  }
  // Fragments of 2 times 8 columns of B from column `n` and depth `k` on.
  template <class Operand>
  static __device__ __forceinline__ void load_b(const float* tile, int n, int k,
                                                std::uint32_t (&to)[4]) {
    if constexpr (Operand::kAlong) {
      const int lane = lane_index();
      ldmatrix_x4(to,
                  tile + (n + lane % 8 + lane / 16 * 8) * Operand::kPitch + k + lane / 8 % 2 * 4);
    } else {
      const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = __float_as_uint(tile[(k + t + i % 2 * 4) * Operand::kPitch + n + g + i / 2 * 8]);
    }
    round(to);
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
    mma_m16n8k8_tf32(c, a, b);
  }

 private:
  static __device__ __forceinline__ void round(std::uint32_t (&values)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = __float_as_uint(round_to_tf32(__uint_as_float(values[i])));
  }
};

template <class T>
__device__ __forceinline__ void multiply_halves(float (&c)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, bf16>) {
    mma_m16n8k16_bf16(c, a, b);
  } else {
    mma_m16n8k16_f16(c, a, b);
  }
}

// Operands of T (bf16 or f16), stored as such. Depth of an instruction: 16.
template <class T>
struct HalfFactors {
  using Storage = T;
  static constexpr int kDepth = 16, kPadAlong = 8, kPadAcross = 8;

  template <class Operand>
  static __device__ __forceinline__ void load_a(const T* tile, int m, int k,
                                                std::uint32_t (&to)[4]) {
    const int lane = lane_index();
    if constexpr (Operand::kAlong) {
      ldmatrix_x4(to, tile + (m + lane % 16) * Operand::kPitch + k + lane / 16 * 8);
    } else {
      ldmatrix_x4_trans(
          to, tile + (k + lane % 8 + lane / 16 * 8) * Operand::kPitch + m + lane / 8 % 2 * 8);
    }
  }
  template <class Operand>
  static __device__ __forceinline__ void load_b(const T* tile, int n, int k,
                                                std::uint32_t (&to)[4]) {
    const int lane = lane_index();
    if constexpr (Operand::kAlong) {
      ldmatrix_x4(to,
                  tile + (n + lane % 8 + lane / 16 * 8) * Operand::kPitch + k + lane / 8 % 2 * 8);
    } else {
      ldmatrix_x4_trans(to, tile + (k + lane % 16) * Operand::kPitch + n + lane / 16 * 8);
    }
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
    multiply_halves<T>(c, a, b);
  }
};

// Operands stored as floats, rounded to T on the way into registers.
template <class T>
struct RoundedFactors {
  using Storage = float;
  static constexpr int kDepth = 16, kPadAlong = 8, kPadAcross = 4;

  template <class Operand>
  static __device__ __forceinline__ void load_a(const float* tile, int m, int k,
                                                std::uint32_t (&to)[4]) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = pair<Operand>(tile, m + g + i % 2 * 8, k + 2 * t + i / 2 * 8);
  }
  template <class Operand>
  static __device__ __forceinline__ void load_b(const float* tile, int n, int k,
                                                std::uint32_t (&to)[4]) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = pair<Operand>(tile, n + g + i / 2 * 8, k + 2 * t + i % 2 * 8);
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
    multiply_halves<T>(c, a, b);
  }

 private:
  // Depths k and k + 1 of an operand's row or column.
  template <class Operand>
  static __device__ __forceinline__ std::uint32_t pair(const float* tile, int outer, int k) {
    if constexpr (Operand::kAlong) {
      const FloatPair two = *reinterpret_cast<const FloatPair*>(tile + outer * Operand::kPitch + k);
      return pack_rounded<T>(two.low, two.high);
    } else {
      const float* low = tile + k * Operand::kPitch + outer;
      return pack_rounded<T>(low[0], low[Operand::kPitch]);
    }
  }
};

// Result: what results are stored as.
template <class Factors, class Result, class TileShape, int kWarpsM, int kWarpsN, Lines kLinesA,
          Lines kLinesB>
class TensorProduct {
 public:
  using Storage = typename Factors::Storage;
  using Shape = TileShape;
  static constexpr int kThreads = Shape::kThreads, kResident = Shape::kResident,
                       kDepth = kStageDepth<Storage>, kStages = kProductStages;
  template <Lines kLines>
  static constexpr int kPad =
      kLines == Lines::kAlongDepth ? Factors::kPadAlong : Factors::kPadAcross;
  using A = OperandTile<Storage, kLinesA, Shape::kM, kDepth, kPad<kLinesA>, kThreads>;
  using B = OperandTile<Storage, kLinesB, Shape::kN, kDepth, kPad<kLinesB>, kThreads>;

 private:
  static constexpr int kWarpM = Shape::kM / kWarpsM, kWarpN = Shape::kN / kWarpsN,
                       kRowTiles = kWarpM / 16, kColumnTiles = kWarpN / 8;
  static constexpr int kOutPitch = kWarpN + 8, kOutElements = 16 * kOutPitch;  // of one warp
  static_assert(kWarpsM * kWarpsN * kWarp == kThreads && kColumnTiles % 2 == 0 &&
                kDepth % Factors::kDepth == 0);
  static constexpr std::size_t kStageBytes =
                                   kStages * (A::kElements + B::kElements) * sizeof(Storage),
                               kOutBytes = kWarpsM * kWarpsN * kOutElements * sizeof(float);

 public:
  static constexpr std::size_t kSharedBytes = kStageBytes > kOutBytes ? kStageBytes : kOutBytes;
  static_assert(kSharedBytes <= 99 * 1024);

  __device__ __forceinline__ TensorProduct() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[i][j][e] = 0;
  }

  __device__ __forceinline__ void multiply(const Storage* a, const Storage* b) {
    const int m = warp_index() / kWarpsN * kWarpM, n = warp_index() % kWarpsN * kWarpN;
#pragma unroll
    for (int k = 0; k < kDepth; k += Factors::kDepth) {
      std::uint32_t from_a[kRowTiles][4], from_b[kColumnTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) Factors::template load_a<A>(a, m + 16 * i, k, from_a[i]);
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j)
        Factors::template load_b<B>(b, n + 16 * j, k, from_b[j]);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          const std::uint32_t columns[2] = {from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]};
          Factors::multiply(sums_[i][j], from_a[i], columns);
        }
    }
  }

  // Calls put(row, column, values) with rows and columns of the tile. `shared`: the block's shared
  // memory, free to use.
  template <class Put>
  __device__ __forceinline__ void finish(float* shared, const Put& put) const {
    constexpr int kPiece = Packed<Result>::kCount, kPieces = kWarpN / kPiece;
    const int lane = lane_index(), g = lane / 4, t = lane % 4;
    const int m = warp_index() / kWarpsN * kWarpM, n = warp_index() % kWarpsN * kWarpN;
    float* mine = shared + warp_index() * kOutElements;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      __syncwarp();  // the rows before have been read
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<FloatPair*>(mine + (g + 8 * half) * kOutPitch + 8 * j + 2 * t) = {
              sums_[i][j][2 * half], sums_[i][j][2 * half + 1]};
      __syncwarp();
#pragma unroll
      for (int piece = lane; piece < 16 * kPieces; piece += kWarp) {
        const int row = piece / kPieces, column = piece % kPieces * kPiece;
        float values[kPiece];
#pragma unroll
        for (int e = 0; e < kPiece; e += 4) {
          const Packed<float> four = load_packed(mine + row * kOutPitch + column + e);
#pragma unroll
          for (int f = 0; f < 4; ++f) values[e + f] = four.at[f];
        }
        put(m + 16 * i + row, n + column, values);
      }
    }
  }

 private:
  float sums_[kRowTiles][kColumnTiles][4];
};

}  // namespace engine::ops::cuda
