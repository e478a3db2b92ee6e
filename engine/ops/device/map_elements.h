// Applies an operation to each element of flat operands. Each thread processes every (grid *
// threads)-th pack of 16 bytes, then single elements of the remainder; single elements only if an
// operand is not aligned to 16 bytes. One thread reads and then writes each element, so that an
// output may be an input. Included by .cu files only.
//
// An operation is a struct with `operator()(a, b)`, the result for an element of each of two
// operands, as floats (those of float64 as doubles); kPair is false if it reads the first one only.
#pragma once

#include <algorithm>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {

inline constexpr int kMapThreads = 256;

// Processes W elements from index i on.
template <int W, class T, class Op>
__device__ __forceinline__ void map_pack(const T* a, const T* b, std::int64_t i, bool add, Op op,
                                         T* to) {
  const Pack<T, W> from_a = load_pack<W>(a + i);
  Pack<T, W> from_b{}, result{};
  if constexpr (Op::kPair) from_b = load_pack<W>(b + i);
  if (add) result = load_pack<W>(to + i);
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    const Wide<T> value = op(to_wide(from_a.at[j]), to_wide(from_b.at[j]));
    result.at[j] = from_wide<T>(add ? to_wide(result.at[j]) + value : value);
  }
  store_pack<W>(to + i, result);
}

template <class T, class Op>
__global__ void map(const T* a, const T* b, std::int64_t packs, std::int64_t count, bool add, Op op,
                    T* to) {
  constexpr int kWidth = Packed<T>::kCount;
  const std::int64_t first = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x,
                     step = std::int64_t{gridDim.x} * kMapThreads;
  for (std::int64_t i = first; i < packs; i += step)
    map_pack<kWidth>(a, b, i * kWidth, add, op, to);
  for (std::int64_t i = packs * kWidth + first; i < count; i += step)
    map_pack<1>(a, b, i, add, op, to);
}

// The number of threads that a loop over `packs` packs of `width` elements, and then over the rest
// of `count`, can use.
inline std::int64_t loop_length(std::int64_t packs, std::int64_t width, std::int64_t count) {
  return std::max(packs, count - packs * width);
}

struct MapOperands {
  TensorView a, b;  // b: for pairs only
  std::int64_t count;
  TensorView to;
  Write write = Write::kOverwrite;
};

// For operands that are stored as T.
template <class T, class Op>
void launch_map_of(KernelContext& context, const char* name, Op op, const MapOperands& o) {
  if (o.count == 0) return;
  constexpr int kWidth = Packed<T>::kCount;
  const std::int64_t packs = aligned_to_16({o.a.data, o.b.data, o.to.data}) ? o.count / kWidth : 0;
  launch(name, map<T, Op>, {loop_blocks(loop_length(packs, kWidth, o.count), kMapThreads)},
         kMapThreads, 0, context.stream, o.a.as<T>(), o.b.as<T>(), packs, o.count,
         o.write == Write::kAdd, op, o.to.as<T>());
}

template <class Op>
void launch_map(KernelContext& context, const char* name, Op op, const MapOperands& o) {
  with_any_storage(o.a.dtype, [&]<class T>(T) { launch_map_of<T>(context, name, op, o); });
}

}  // namespace engine::ops::cuda
