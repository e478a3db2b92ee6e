// Processes several elements at once: vector types for aligned memory, and cheap divisions.
// Included by .cu files only.
#pragma once

#include <initializer_list>

#include "engine/ops/device/device_code.h"

// For loops of constant length over arrays that must stay in registers.
#if defined(__CUDACC__)
#define ENGINE_UNROLL _Pragma("unroll")
#else
#define ENGINE_UNROLL
#endif

namespace engine::ops::cuda {

// W elements that one instruction loads or stores, up to 16 bytes.
template <class T, int W>
struct alignas(sizeof(T) * W) Pack {
  T at[W];
};
template <int W, class T>
__device__ __forceinline__ Pack<T, W> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, W>*>(from);
}
template <int W, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, W>& value) {
  *reinterpret_cast<Pack<T, W>*>(to) = value;
}

// Writes the values, or adds them to the memory.
template <class T, int W>
__device__ __forceinline__ void put(const Wide<T> (&values)[W], bool add, T* to) {
  Pack<T, W> out{};
  if (add) out = load_pack<W>(to);
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j)
    out.at[j] = from_wide<T>(add ? to_wide(out.at[j]) + values[j] : values[j]);
  store_pack<W>(to, out);
}

// Returns true if all of these (null ones aside) are aligned to 16 bytes.
inline bool aligned_to_16(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  return true;
}

// a / b. REQUIRES: a >= 0, b > 0. A 64-bit division costs several times as much as a 32-bit one.
__device__ __forceinline__ std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

}  // namespace engine::ops::cuda
