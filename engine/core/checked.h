// Arithmetic on extents and sizes that throws on overflow: a model's definition, in a file or a
// checkpoint from elsewhere, may contain any numbers.
//
// The limits below keep all derived values (bytes, offsets in memory, costs) far below 2^63, so
// that only the values of a definition itself have to be checked.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/error.h"

namespace engine {

inline constexpr std::int64_t kMaxExtent = INT32_MAX;  // for one dimension and for a layer's
                                                       // options
inline constexpr std::int64_t kMaxElements = std::int64_t{1}
                                             << 36;  // for one tensor, including the batch

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
