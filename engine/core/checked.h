// Arithmetic on extents and sizes that throws where it would wrap: a model's definition, in a file
// or a snapshot from elsewhere, may name any numbers.
//
// The limits below keep all that is computed from them (bytes, places in memory, costs) far from
// the ends of 64 bits, so that only what comes from a definition itself has to be checked.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/error.h"

namespace engine {

inline constexpr std::int64_t kMaxExtent = INT32_MAX;  // of one dimension, and of a layer's options
inline constexpr std::int64_t kMaxElements = std::int64_t{1}
                                             << 36;  // of one tensor, batch included

// REQUIRES: neither is negative. Throws ShapeError.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw ShapeError(std::to_string(a) + " + " + std::to_string(b) + " is more than 2^63 elements");
  return sum;
}
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw ShapeError(std::to_string(a) + " * " + std::to_string(b) + " is more than 2^63 elements");
  return product;
}

// Throws ShapeError "WHAT has N elements; expected at most M".
inline std::int64_t checked_elements(std::int64_t count, const std::string& what) {
  if (count > kMaxElements)
    throw ShapeError(what + " has " + std::to_string(count) + " elements; expected at most " +
                     std::to_string(kMaxElements));
  return count;
}

}  // namespace engine
