// Sums over a row, for the norms on the CPU. Only for *_cpu.cc, once for each instruction set.
#pragma once

#include <cstdint>

#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns the sum over the row, two vectors at a time. body must return 0 for lanes beyond the end.
template <class Body>
ENGINE_INLINE float sum_row(std::int64_t width, Body body) {
  Floats even = zero(), odd = zero();
  std::int64_t c = 0;
  for (; c + 2 * kWidth <= width; c += 2 * kWidth) {
    even += body(AllLanes{}, c);
    odd += body(AllLanes{}, c + kWidth);
  }
  for_each_vector(c, width, [&](auto lanes, std::int64_t i) { even += body(lanes, i); });
  return horizontal_sum(even + odd);
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
