// Reads numbers from bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace base {

// Returns the number of `width` bytes at `at`, the lowest byte first.
inline std::uint64_t little_endian(const std::uint8_t* at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | at[i];
  return value;
}

// Returns element i of an array of T, which need not be aligned. REQUIRES: it is within the bytes.
template <class T>
T element_at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace base
