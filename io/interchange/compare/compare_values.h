// Measures the difference of two blocks of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/checkpoint/checkpoint.h"

namespace io {

// If all are zero, the comparison is bit by bit (a NaN equals the same NaN, -0 differs from +0).
// Otherwise two numbers are equal if they are within any of the tolerances that are set; then NaN
// equals NaN, and an infinity only itself. Integers are always compared bit by bit.
struct Tolerance {
  double relative = 0, absolute = 0;  // |a - b| <= absolute + relative * |b|
  std::int64_t ulp = 0;               // maximum distance in representable numbers
  bool any() const { return relative > 0 || absolute > 0 || ulp > 0; }
};

struct ValueReport {
  bool differs = false;
  double max_absolute = 0;        // NaN if one of the numbers is
  std::int64_t max_ulp = -1;      // -1: not available
  std::int64_t first_index = -1;  // the first differing element
};

// Adds the comparison of `a` and `b`, whose first element has index `first`. REQUIRES: same length,
// whole elements.
void compare_values(DType type, std::span<const std::byte> a, std::span<const std::byte> b,
                    std::int64_t first, const Tolerance& tolerance, ValueReport& report);

}  // namespace io
