// Defines which elements a top-k sum sends and how, for the CPU and for kernels.
//
// A code has the sent elements of one rank in ascending order of their indices: first all values,
// then all indices of 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/base/numbers/half.h"

namespace engine::ops {

using TopKIndex = std::uint32_t;

// Integers that order numbers by magnitude. NaN is the largest, so that it is sent and detected.
template <class T>
struct TopKKey;
template <>
struct TopKKey<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kMagnitude = 0x7fffffff, kInfinite = 0x7f800000;
};
template <>
struct TopKKey<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kMagnitude = 0x7fffffffffffffff, kInfinite = 0x7ff0000000000000;
};
template <class T>
BASE_HOST_DEVICE typename TopKKey<T>::Bits top_k_key(T value) {
  return __builtin_bit_cast(typename TopKKey<T>::Bits, value) & TopKKey<T>::kMagnitude;
}

// The bytes of a code of `sent` elements of `element` bytes.
constexpr std::size_t top_k_bytes(std::int64_t sent, std::size_t element) {
  return static_cast<std::size_t>(sent) * (element + sizeof(TopKIndex));
}
// The position of the indices.
constexpr std::size_t top_k_indices_at(std::int64_t sent, std::size_t element) {
  return static_cast<std::size_t>(sent) * element;
}

}  // namespace engine::ops
