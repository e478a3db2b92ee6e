// Loads and stores a few adjacent elements at once as floats (those of float64 as doubles), for
// kernels bound by bytes. Included by .cu files only.
#pragma once

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Neighbors {
  T at[kCount];
};

// `from` and `to` must be aligned to the total size of the elements, or to 16 bytes if that is
// less.
template <int kCount, class T>
__device__ __forceinline__ void load_floats(const T* from, Wide<T>* to) {
  const auto values = *reinterpret_cast<const Neighbors<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = to_wide(values.at[i]);
}
template <int kCount, class T>
__device__ __forceinline__ void store_floats(T* to, const Wide<T>* from) {
  Neighbors<T, kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.at[i] = from_wide<T>(from[i]);
  *reinterpret_cast<Neighbors<T, kCount>*>(to) = values;
}

// Host code: returns true if rows of `width` elements at these addresses can be read 16 bytes at a
// time; the narrowest dtype is T.
template <class T, class... Addresses>
bool rows_are_aligned(std::int64_t width, const Addresses*... address) {
  return width % Packed<T>::kCount == 0 &&
         ((reinterpret_cast<std::uintptr_t>(address) % 16 == 0) && ...);
}

}  // namespace engine::ops::cuda
