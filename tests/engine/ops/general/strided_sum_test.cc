// Strided sums: values by hand, each term and order of axes against float64, equal bits for any
// number of threads, and operands that are too small.
#include "engine/ops/general/strided_sum.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/general/sum_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(StridedSumKernel, SumsRowsAndColumns) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    Operand<float> u = operand_of<float>({2, 3}, {1, 2, 3, 10, 20, 30}), rows({2}, 1),
                   columns({3}, 1);
    strided_sum(c.context, {.u = u.view(),
                            .y = rows.view(),
                            .kept = axes_of<4>({{2, {3, 0, 0, 1}}}),
                            .summed = axes_of<4>({{3, {1, 0, 0, 0}}}),
                            .scale = 0.5});
    EXPECT_EQ(rows.values, (std::vector<float>{3, 30}));
    strided_sum(c.context, {.term = SumTerm::kNegative,
                            .u = u.view(),
                            .y = columns.view(),
                            .kept = axes_of<4>({{3, {1, 0, 0, 1}}}),
                            .summed = axes_of<4>({{2, {3, 0, 0, 0}}}),
                            .write = Write::kAdd});
    EXPECT_EQ(columns.values, (std::vector<float>{-10, -21, -32}));
  });
}

TEST(StridedSumKernel, SumsOfNothingAreZero) {
  Context c(2, 0);
  Operand<float> u({0, 3}, 0), y({3}, 7), kept({3}, 7);
  const Axes<4> columns = axes_of<4>({{3, {1, 0, 0, 1}}}), none = axes_of<4>({{0, {3, 0, 0, 0}}});
  strided_sum(c.context, {.u = u.view(), .y = y.view(), .kept = columns, .summed = none});
  EXPECT_EQ(y.values, (std::vector<float>{0, 0, 0}));
  strided_sum(
      c.context,
      {.u = u.view(), .y = kept.view(), .kept = columns, .summed = none, .write = Write::kAdd});
  EXPECT_EQ(kept.values, (std::vector<float>{7, 7, 7}));
}

TEST(StridedSumKernel, EveryTermAndLoopAgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (const SumCase& each : kSums)
      for (const SumTerm term : kSumTerms)
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(std::string(each.name) + ", term " + std::to_string(static_cast<int>(term)));
          const Given operands[] = {random_operand({20000}, 1), random_operand({20000}, 2),
                                    positive_operand({20000}), random_operand({20000}, 4)};
          const auto [found, expected] =
              run_both(threads, operands,
                       [&](KernelContext& c, TensorView u, TensorView v, TensorView w,
                           TensorView y) { sum_case(c, each, term, write, u, v, w, y); });
          EXPECT_EQ(far_apart(found[3], expected[3], 1e-5, 1e-5), "");
        }
  });
}

TEST(StridedSumKernel, ThreadsDoNotChangeTheBits) {
  for (const SumCase& each : kSums) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 5}) {
      Context c(threads, 0);
      Operand<float> u = random_operand({20000}, 1), v = random_operand({20000}, 2), y({20000}, 0);
      sum_case(c.context, each, SumTerm::kProduct, Write::kOverwrite, u.view(), v.view(), v.view(),
               y.view());
      if (first.empty()) first = y.values;
      EXPECT_EQ(y.values, first) << each.name << ", " << threads;
    }
  }
}

// Into activations, and into the gradient of a parameter, which is never bf16.
struct StoredSumCase {
  const SumCase& sum;
  SumTerm term;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto u = stored_operand<T>({20000}, 1), v = stored_operand<T>({20000}, 2),
         y = stored_operand<T>({20000}, 4);
    Operand<float> wide = random_operand({20000}, 4);
    Context c(2, 0);
    sum_case(c.context, sum, term, Write::kAdd, u.view(), v.view(), v.view(), y.view());
    sum_case(c.context, sum, term, Write::kAdd, u.view(), v.view(), v.view(), wide.view());
    return {floats_of(y), wide.values};
  }
};

class StridedSumStored : public Bf16Test {};

TEST_F(StridedSumStored, IsThatOfFloatsRounded) {
  for (const SumCase& each : kSums)
    for (const SumTerm term : {SumTerm::kValue, SumTerm::kProduct})
      expect_same_rounded(StoredSumCase{each, term}, 1, 1e-4);
}

TEST(StridedSumKernel, RefusesElementsOutside) {
  Context c(1, 0);
  Operand<float> u({2, 3}, 0), y({2}, 0);
  const StridedSum sum{.u = u.view(),
                       .y = y.view(),
                       .kept = axes_of<4>({{2, {3, 0, 0, 1}}}),
                       .summed = axes_of<4>({{4, {1, 0, 0, 0}}})};
  EXPECT_VALUES(shape_error([&] { strided_sum(c.context, sum); }), "strided_sum: 6 u [2, 3]");
}

}  // namespace
}  // namespace engine::ops
