// Maxima and gathered entries: values and gradients by hand, for every number of threads, NaN, and
// shapes that do not fit.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/general/gather.h"
#include "engine/ops/general/reduce_max.h"
#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/general/general_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

const Axes<2> kRows = axes_of<2>({{2, {3, 1}}}), kInRow = axes_of<2>({{3, {1, 0}}});

TEST(ReduceMaxKernel, TheGradientGoesToTheFirstMaximum) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    Operand<float> x = operand_of<float>({2, 3}, {1, 5, 5, -2, -3, -1}), y({2}, 0),
                   dy = operand_of<float>({2}, {10, 20}), dx({2, 3}, 9);
    reduce_max_forward(c.context, {x.view(), y.view(), kRows, kInRow});
    EXPECT_EQ(y.values, (std::vector<float>{5, -1}));
    reduce_max_backward(c.context, {x.view(), dy.view(), dx.view(), kRows, kInRow});
    EXPECT_EQ(dx.values, (std::vector<float>{0, 10, 0, 0, 0, 20}));
    reduce_max_backward(c.context, {x.view(), dy.view(), dx.view(), kRows, kInRow, Write::kAdd});
    EXPECT_EQ(dx.values, (std::vector<float>{0, 20, 0, 0, 0, 40}));
  });
}

TEST(ReduceMaxKernel, ANaNIsTheMaximum) {
  Context c(1, 0);
  Operand<float> x = operand_of<float>({2, 3}, {1, NAN, 5, -INFINITY, -INFINITY, -INFINITY}),
                 y({2}, 0);
  reduce_max_forward(c.context, {x.view(), y.view(), kRows, kInRow});
  EXPECT_TRUE(std::isnan(y.values[0]));
  EXPECT_EQ(y.values[1], -INFINITY);
}

TEST(GatherKernel, SumsTheGradientsOfRepeatedEntries) {
  const std::vector<std::int64_t> indices{2, 0, 2};
  const GatherEntries chosen(indices);
  for_each_setting([&](int threads) {
    Context c(threads, 0);
    Operand<float> x = operand_of<float>({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
                   y({2, 3, 2}, 9), dx({2, 3, 2}, 9);
    gather_forward(c.context, {.axis = 1, .chosen = chosen, .x = x.view(), .y = y.view()});
    EXPECT_EQ(y.values, (std::vector<float>{4, 5, 0, 1, 4, 5, 10, 11, 6, 7, 10, 11}));
    gather_backward(c.context, {.axis = 1, .chosen = chosen, .dy = y.view(), .dx = dx.view()});
    EXPECT_EQ(dx.values, (std::vector<float>{0, 1, 0, 0, 8, 10, 6, 7, 0, 0, 20, 22}));
    gather_backward(
        c.context,
        {.axis = 1, .chosen = chosen, .dy = x.view(), .dx = dx.view(), .write = Write::kAdd});
    EXPECT_EQ(dx.values, (std::vector<float>{2, 4, 0, 0, 12, 16, 14, 16, 0, 0, 36, 40}));
  });
}

TEST(GatherKernel, RefusesEntriesOutside) {
  const std::vector<std::int64_t> indices{0, 3};
  const GatherEntries chosen(indices);
  Context c(1, 0);
  Operand<float> x({2, 3}, 0), y({2, 2}, 0);
  EXPECT_VALUES(shape_error([&] {
                  gather_forward(c.context,
                                 {.axis = 1, .chosen = chosen, .x = x.view(), .y = y.view()});
                }),
                "gather_forward: x [2, 3], y [2, 2]: 2 entries axis 1");
}

}  // namespace
}  // namespace engine::ops
