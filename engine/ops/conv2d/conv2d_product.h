// The matrix product that convolution's kernels share: a block computes a tile [kM, kN] of A B,
// where loaders (conv2d_loaders.h) bring pieces of kDepth of A and B into a ring of shared-memory
// stages, as asynchronous copies that run ahead of the arithmetic. An operand's tile lies with
// lines along the depth or across it, as it lies in memory; no operand is transposed on the way,
// since a transposition would be one more pass over shared memory with bank conflicts.
// Arithmetic in float32: conv2d_simt.h; on tensor cores: conv2d_tensor.h.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/conv2d/conv2d_loaders.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// A block's share of the result. kResident: how many blocks a processor has registers for
// (conv2d_plan.h).
template <int kM_, int kN_, int kThreads_, int kResident_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kThreads = kThreads_, kResident = kResident_;
};

// How the lines of an operand's tile lie.
enum class Lines { kAlongDepth, kAcrossDepth };

// Shape of one operand's tile with kOuter rows or columns of the product. kPad: elements between
// lines, against bank conflicts.
template <class S, Lines kLines, int kOuter, int kDepth, int kPad, int kThreads>
struct OperandTile {
  static constexpr bool kAlong = kLines == Lines::kAlongDepth;
  static constexpr int kRows = kAlong ? kOuter : kDepth, kLine = kAlong ? kDepth : kOuter,
                       kPitch = kLine + kPad;
  static constexpr int kElements = kRows * kPitch;
  static_assert(kPitch * sizeof(S) % 16 == 0);
  using Share = TileShare<S, kRows, kLine, kPitch, kThreads>;
};

// Depth of a stage: 128 bytes of an operand's line. A stage is long enough to hide what its copies
// take, so two are enough; with shorter ones half of all instructions would compute addresses.
template <class S>
inline constexpr int kStageDepth = 128 / static_cast<int>(sizeof(S));
inline constexpr int kProductStages = 2;

// A block runs through depths [first, last) of its tile. Math: see conv2d_simt.h for its members.
template <class Math, class LoaderA, class LoaderB>
__device__ __forceinline__ void accumulate(Math& math, const LoaderA& load_a, const LoaderB& load_b,
                                           int first, int last, typename Math::Storage* shared) {
  constexpr int kStages = Math::kStages, kDepth = Math::kDepth,
                kStage = Math::A::kElements + Math::B::kElements;
  const int steps = last > first ? (last - first + kDepth - 1) / kDepth : 0;
  const auto load = [&](int step) {
    if (step < steps) {
      typename Math::Storage* stage = shared + step % kStages * kStage;
      load_a.load(stage, first + step * kDepth, last);
      load_b.load(stage + Math::A::kElements, first + step * kDepth, last);
    }
    commit_copies();  // also when there is nothing, so that the number of groups tells the stage
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);  // into the stage that all threads have left
    const typename Math::Storage* stage = shared + step % kStages * kStage;
    math.multiply(stage, stage + Math::A::kElements);
  }
  wait_copies<0>();
  __syncthreads();  // shared memory is free again
}

// Where results go: rows of `columns` elements, which start at any offset. bias may be null.
template <class S>
struct Results {
  S* data = nullptr;
  const float* bias = nullptr;
  int columns = 0;
  bool add = false, vector = false;  // vector: rows are aligned to 16 bytes

  // kCount neighbours from `column` on, a multiple of kCount.
  template <int kCount>
  __device__ __forceinline__ void put(std::int64_t offset, int column,
                                      const float (&values)[kCount]) const {
    if constexpr (kCount == Packed<S>::kCount) {
      if (vector) {
        if (column < columns) put_packed(data + offset + column, column, values);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < columns) {
        float value = values[i] + (bias != nullptr ? bias[column + i] : 0.0f);
        S* to = data + offset + column + i;
        if (add) value += to_float(*to);
        *to = from_float<S>(value);
      }
  }

 private:
  template <int kCount>
  __device__ __forceinline__ void put_packed(S* to, int column,
                                             const float (&values)[kCount]) const {
    Packed<S> packed, before;
    if (add) before = load_packed(to);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float value = values[i] + (bias != nullptr ? bias[column + i] : 0.0f);
      if (add) value += to_float(before.at[i]);
      packed.at[i] = from_float<S>(value);
    }
    store_packed(to, packed);
  }
};

inline bool aligned_16(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}
// Whether lines of `channels` elements may be read and written in pieces of 16 bytes.
template <class S>
bool in_pieces(const S* data, std::int64_t channels) {
  return channels % Packed<S>::kCount == 0 && aligned_16(data);
}

}  // namespace engine::ops::cuda
