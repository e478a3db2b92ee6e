// Weights of rows: products in f32 and f64, and what is refused.
#include "engine/ops/loss/row_weights.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

template <class T>
std::vector<T> weighed(std::vector<double> weights, std::vector<T> rows) {
  const auto count = std::ssize(rows);
  Operand<double> w = operand_of<double>({count}, std::move(weights));
  Operand<T> r = operand_of<T>({count}, std::move(rows));
  Context c(2, 0);
  weigh_rows(c.context, w.view(), r.view());
  return r.values;
}

TEST(RowWeights, MultiplyRows) {
  EXPECT_EQ(weighed<float>({0, 1, 2.5}, {3, 4, -2}), (std::vector<float>{0, 4, -5}));
  EXPECT_EQ(weighed<double>({0.5, 0.25}, {0.1, 0.3}), (std::vector<double>{0.05, 0.075}));
  EXPECT_EQ(weighed<float>({0.1}, {3}), (std::vector<float>{0.1F * 3})) << "rounded first";
  EXPECT_EQ(weighed<double>({0.1}, {3}), (std::vector<double>{0.1 * 3})) << "not rounded";
  EXPECT_EQ(weighed<float>({}, {}), std::vector<float>{});
}

TEST(RowWeights, RefuseOtherSizesAndTypes) {
  Operand<double> two({2}, 0), three({3}, 0);
  Operand<float> narrow({2}, 0);
  Context c(1, 0);
  EXPECT_THROW(weigh_rows(c.context, two.view(), three.view()), ShapeError);
  EXPECT_THROW(weigh_rows(c.context, narrow.view(), two.view()), Error);
}

}  // namespace
}  // namespace engine::ops
