// How far two blocks of numbers are apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/checkpoint/checkpoint.h"

namespace io {

// All zero: bit by bit (a NaN equals the same NaN, -0 differs from +0). Otherwise two numbers are
// equal when any of the tolerances that are set says so; NaN equals NaN then, and an infinity only
// itself. Integers are always compared bit by bit.
struct Tolerance {
  double relative = 0, absolute = 0;  // |a - b| <= absolute + relative * |b|
  std::int64_t ulp = 0;               // at most so many representable numbers apart
  bool any() const { return relative > 0 || absolute > 0 || ulp > 0; }
};

struct ValueReport {
  bool differs = false;
  double max_absolute = 0;        // NaN when one side is
  std::int64_t max_ulp = -1;      // -1: no such measure
  std::int64_t first_index = -1;  // the first element that differs
};

// Adds what `a` and `b` show, whose first element has index `first`. REQUIRES: same length, whole
// elements.
void compare_values(DType type, std::span<const std::byte> a, std::span<const std::byte> b,
                    std::int64_t first, const Tolerance& tolerance, ValueReport& report);

}  // namespace io
