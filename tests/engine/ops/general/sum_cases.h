// Strided sums for tests on the CPU and on a CUDA device: each order of kept and summed axes.
#pragma once

#include "engine/ops/general/strided_sum.h"
#include "tests/engine/ops/common/kernel_test_support.h"
#include "tests/engine/ops/general/general_cases.h"

namespace engine::ops {

struct SumCase {
  const char* name;
  Axes<4> kept, summed;
};

inline const SumCase kSums[] = {
    {"of rows", axes_of<4>({{7, {300, 300, 1, 1}}}), axes_of<4>({{300, {1, 1, 0, 0}}})},
    {"of columns", axes_of<4>({{300, {1, 1, 1, 1}}}), axes_of<4>({{7, {300, 300, 0, 0}}})},
    {"of the middle", axes_of<4>({{3, {500, 0, 5, 5}}, {5, {1, 1, 1, 1}}}),
     axes_of<4>({{100, {5, 5, 0, 0}}})},
    {"of both ends", axes_of<4>({{9, {11, 1, 11, 1}}}),
     axes_of<4>({{13, {99, 0, 99, 0}}, {11, {1, 9, 1, 0}}})},
    {"of all", axes_of<4>({}), axes_of<4>({{5000, {1, 1, 1, 0}}})},
    {"of none", axes_of<4>({{5000, {1, 1, 1, 1}}}), axes_of<4>({})},
    {"of every second", axes_of<4>({{40, {1, 2, 0, 3}}}), axes_of<4>({{30, {80, 160, 2, 0}}})},
};

inline constexpr SumTerm kSumTerms[] = {SumTerm::kValue, SumTerm::kNegative, SumTerm::kProduct,
                                        SumTerm::kQuotient, SumTerm::kDivisor};

// Divisors away from 0.
inline kernel_test::Operand<float> positive_operand(const Shape& shape) {
  kernel_test::Operand<float> operand = kernel_test::random_operand(shape, 3);
  for (float& value : operand.values) value = value * value + 0.5F;
  return operand;
}

// `w` is also the divisor of quotients.
inline void sum_case(KernelContext& context, const SumCase& each, SumTerm term, Write write,
                     const TensorView& u, const TensorView& v, const TensorView& w,
                     const TensorView& y) {
  strided_sum(context, {.term = term,
                        .u = u,
                        .v = term == SumTerm::kQuotient ? w : v,
                        .w = w,
                        .y = y,
                        .kept = each.kept,
                        .summed = each.summed,
                        .scale = 0.75,
                        .write = write});
}

}  // namespace engine::ops
