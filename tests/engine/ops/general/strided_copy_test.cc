// Strided copies: values by hand, every kind of loop against plain indexing, and parts that do not
// fit.
#include "engine/ops/general/strided_copy.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/general/general_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(StridedCopyAxes, AreMergedWhereOneContinuesTheOther) {
  Axes<2> axes;
  axes.add({2, {12, 12}});
  axes.add({1, {5, 5}});
  axes.add({3, {4, 4}});
  axes.add({4, {1, 1}});
  EXPECT_EQ(axes.count, 1);
  EXPECT_EQ(axes.elements(), 24);
  EXPECT_EQ(axes.last_index(0), 23);
  axes.add({2, {0, 1}});
  EXPECT_EQ(axes.count, 2);
}

// y[1 + 3 j + i] = 2 x[i * 4 + j] + y
TEST(StridedCopyKernel, ScalesAndAdds) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    Operand<float> x = operand_of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), y({8}, 1);
    StridedCopy copy{
        .x = x.view(), .y = y.view(), .axes = {}, .y_first = 1, .scale = 2, .write = Write::kAdd};
    copy.axes.add({2, {4, 1}});
    copy.axes.add({2, {1, 3}});
    strided_copy(c.context, copy);
    EXPECT_EQ(y.values, (std::vector<float>{1, 3, 11, 1, 5, 13, 1, 1}));
  });
}

// The element by element definition, in the order of the axes.
std::vector<float> expected_copy(const CopyCase& c, const Operand<float>& x,
                                 const Operand<float>& y, double scale, Write write) {
  std::vector<float> result = y.values;
  for (std::int64_t i = 0; i < c.axes.elements(); ++i) {
    std::int64_t from = c.x_first, to = c.y_first, rest = i;
    for (int d = c.axes.count; d-- > 0;) {
      const Axis<2>& axis = c.axes.at[static_cast<std::size_t>(d)];
      from += rest % axis.count * axis.steps[0];
      to += rest % axis.count * axis.steps[1];
      rest /= axis.count;
    }
    float& at = result[static_cast<std::size_t>(to)];
    const float value = x.values[static_cast<std::size_t>(from)] * static_cast<float>(scale);
    at = write == Write::kAdd ? at + value : value;
  }
  return result;
}

TEST(StridedCopyKernel, EveryLoopMovesTheSameElements) {
  for_each_setting([](int threads) {
    for (const CopyCase& each : kCopies)
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        for (const double scale : {1.0, 0.5}) {
          SCOPED_TRACE(each.name);
          Context c(threads, 0);
          Operand<float> x = random_operand({20000}, 1), y = random_operand({20000}, 2);
          const std::vector<float> expected = expected_copy(each, x, y, scale, write);
          strided_copy(c.context, {.x = x.view(),
                                   .y = y.view(),
                                   .axes = each.axes,
                                   .x_first = each.x_first,
                                   .y_first = each.y_first,
                                   .scale = scale,
                                   .write = write});
          EXPECT_EQ(y.values, expected);
        }
  });
}

struct StoredCopyCase {
  const CopyCase& copy;
  Write write;
  double scale;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>({20000}, 1), y = stored_operand<T>({20000}, 2);
    Context c(2, 0);
    strided_copy(c.context, {.x = x.view(),
                             .y = y.view(),
                             .axes = copy.axes,
                             .x_first = copy.x_first,
                             .y_first = copy.y_first,
                             .scale = scale,
                             .write = write});
    return {floats_of(y)};
  }
};

class StridedCopyStored : public Bf16Test {};

TEST_F(StridedCopyStored, IsThatOfFloatsRounded) {
  for (const CopyCase& each : kCopies)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const double scale : {1.0, 0.75})
        expect_same_rounded(StoredCopyCase{each, write, scale}, 1, 1e-4);
}

TEST(StridedCopyKernel, MovesDoubles) {
  Context c(2, 0);
  const Axes<2> turned = axes_of<2>({{2, {1, 2}}, {2, {2, 1}}});
  Operand<double> x = operand_of<double>({2, 2}, {1, 2, 3, 4}), y({2, 2}, 0);
  strided_copy(c.context, {.x = x.view(), .y = y.view(), .axes = turned});
  EXPECT_EQ(y.values, (std::vector<double>{1, 3, 2, 4}));
}

TEST(StridedCopyKernel, RefusesElementsOutside) {
  Context c(1, 0);
  Operand<float> x({2, 3}, 0), y({5}, 0);
  const StridedCopy copy{.x = x.view(), .y = y.view(), .axes = axes_of<2>({{6, {1, 1}}})};
  EXPECT_VALUES(shape_error([&] { strided_copy(c.context, copy); }),
                "strided_copy: 5 x [2, 3] 5 y [5]");
}

}  // namespace
}  // namespace engine::ops
