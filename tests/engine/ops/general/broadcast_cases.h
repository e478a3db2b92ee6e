// Expansions of two operands for tests on the CPU and on a CUDA device.
#pragma once

#include <cmath>

#include "engine/ops/general/broadcast.h"
#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {

struct BroadcastShapes {
  Shape a, b, y;
};
inline const BroadcastShapes kBroadcasts[] = {
    {{3, 5, 7}, {3, 5, 7}, {3, 5, 7}},         {{3, 5, 7}, {3, 1, 7}, {3, 5, 7}},
    {{3, 1, 1}, {3, 5, 7}, {3, 5, 7}},         {{2, 9, 1, 33}, {2, 1, 17, 1}, {2, 9, 17, 33}},
    {{2, 300, 20}, {2, 300, 1}, {2, 300, 20}}, {{1, 1}, {1, 1}, {1, 1}},
};
inline constexpr BinaryKind kBinaryKinds[] = {BinaryKind::kAdd, BinaryKind::kSubtract,
                                              BinaryKind::kMultiply, BinaryKind::kDivide};

inline constexpr BinaryKind kComparisons[] = {BinaryKind::kGreater, BinaryKind::kGreaterEqual,
                                              BinaryKind::kEqual};

// -1, 0 and 1, so that some are equal.
inline kernel_test::Operand<float> signs(const Shape& shape, std::uint32_t seed) {
  kernel_test::Operand<float> operand = kernel_test::random_operand(shape, seed);
  for (float& value : operand.values) value = std::round(value);
  return operand;
}

// A choice in each expansion, where the condition or a value is the smaller one.
struct ChoiceShapes {
  Shape condition, a, b, y;
};
inline const ChoiceShapes kChoices[] = {
    {{3, 5, 7}, {3, 5, 7}, {3, 5, 7}, {3, 5, 7}},
    {{3, 1, 7}, {3, 5, 1}, {1, 1, 1}, {3, 5, 7}},
    {{3, 5, 7}, {3, 1, 1}, {3, 1, 7}, {3, 5, 7}},
    {{2, 300, 1}, {2, 1, 200}, {2, 300, 200}, {2, 300, 200}},
    {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

struct ChoiceOperands {
  kernel_test::Given all[7];  // condition, a, b, dy, y, da, db
};
inline ChoiceOperands choice_operands(const ChoiceShapes& each) {
  using kernel_test::nothing, kernel_test::random_operand;
  return {{signs(each.condition, 1), random_operand(each.a, 2), random_operand(each.b, 3),
           random_operand(each.y, 4), nothing(each.y), random_operand(each.a, 5),
           random_operand(each.b, 6)}};
}

// Numbers away from 0.
inline kernel_test::Operand<float> divisor(const Shape& shape) {
  kernel_test::Operand<float> operand = kernel_test::random_operand(shape, 2);
  for (float& value : operand.values) value = value * value + 0.5F;
  return operand;
}

}  // namespace engine::ops
