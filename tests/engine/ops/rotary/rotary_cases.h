// Operands of the rotary position embedding, for the tests of host and device.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/ops/rotary/rotary.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

struct RotarySetting {
  Shape shape;  // [n, t, width]
  std::int64_t heads, size;
  std::vector<std::int64_t> first_positions{};
  engine::ops::RotaryFrequencies frequencies{};

  std::string text() const {
    return shape.to_string() + ", " + std::to_string(heads) + " heads of " + std::to_string(size);
  }
  engine::ops::Rotary call(const TensorView& x, const TensorView& y, bool back, Write write) const {
    return {.x = x,
            .heads = heads,
            .size = size,
            .frequencies = frequencies,
            .y = y,
            .back = back,
            .write = write,
            .first_positions = first_positions};
  }
};

// Without heads that are copied and with them; pairs that fill vectors, and others.
inline const RotarySetting kRotaries[] = {{{0, 5, 24}, 2, 8},
                                          {{1, 1, 2}, 1, 2},
                                          {{2, 7, 30}, 3, 6},
                                          {{2, 3, 32}, 3, 8, {}, {.theta = 500000}},
                                          {{1, 33, 4 * 34}, 3, 34, {1000}},
                                          {{3, 5, 5 * 64}, 4, 64, {8191, 0, 17}},
                                          {{1, 2, 9 * 128}, 7, 128},
                                          {{1, 3, 3 * 256}, 2, 256, {5}},
                                          {{2, 9, 64 + 3}, 2, 32},
                                          {{1, 40, 96}, 2, 32, {30}, {.factor = 8}}};

}  // namespace kernel_test
