// The softmax of rows: PyTorch's numbers, the fast kernels against the float64 loops, and rows with
// infinities and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/attention/softmax.h"
#include "tests/engine/ops/common/kernel_test_support.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// The numbers of torch.softmax(x, -1) in float64, and of its gradient.
TEST(Softmax, FollowsPyTorchsDefinition) {
  const Shape shape{2, 3};
  Operand<double> x = operand_of<double>(shape, {0.5, -1, 2, 1000, 1001, 999.5}),
                  dy = operand_of<double>(shape, {1, -2, 0.5, 0.25, 1, -1}), y(shape, 0),
                  dx(shape, 0);
  Context context(1, 0);
  softmax_forward(context.context, x.view(), y.view());
  softmax_backward(context.context, y.view(), dy.view(), dx.view(), Write::kOverwrite);
  EXPECT_EQ(
      far_apart(y.values,
                std::vector<double>{0.1752903921400367, 0.039112573270687456, 0.7855970345892759,
                                    0.23122389762214907, 0.6285317192117624, 0.14024438316608848},
                1e-14, 0),
      "");
  EXPECT_EQ(
      far_apart(dx.values,
                std::vector<double>{0.08942198104727624, -0.09738497886019377, 0.007962997812917543,
                                    -0.06846384930237406, 0.2852947519438199, -0.21683090264144586},
                1e-13, 1e-16),
      "");
}

const Shape kShapes[] = {{1}, {5}, {3, 1}, {7, 9}, {2, 3, 17}, {4, 64}, {2, 1000}, {0, 8}};

TEST(Softmax, Float32AgreesWithFloat64AndDoesNotDependOnThreads) {
  std::vector<float> first;
  for_each_setting([&](int threads) {
    std::vector<float> all;
    for (const Shape& shape : kShapes)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(shape.to_string());
        Operand<float> x = random_operand(shape, 1), y = gemm_test::nan_operand(shape),
                       dy = random_operand(shape, 2), dx = output(shape, write);
        for (float& value : x.values) value *= 9;
        Operand<double> wide_x = widen(x), wide_y(shape, 0), wide_dy = widen(dy),
                        wide_dx = widen(dx);
        Context c(threads, 0);
        softmax_forward(c.context, x.view(), y.view());
        softmax_forward(c.context, wide_x.view(), wide_y.view());
        softmax_backward(c.context, y.view(), dy.view(), dx.view(), write);
        softmax_backward(c.context, wide_y.view(), wide_dy.view(), wide_dx.view(), write);
        EXPECT_EQ(far_apart(y.values, wide_y.values, 4e-6, 1e-30), "");
        EXPECT_EQ(far_apart(dx.values, wide_dx.values, 1e-5, 1e-6), "");
        all.insert(all.end(), y.values.begin(), y.values.end());
        all.insert(all.end(), dx.values.begin(), dx.values.end());
        softmax_forward(c.context, x.view(), x.view());
        EXPECT_EQ(x.values, y.values);
        if (write == Write::kAdd) continue;
        softmax_backward(c.context, y.view(), dy.view(), dy.view(), write);
        EXPECT_EQ(dy.values, dx.values);
      }
    if (threads == 1) first = all;
    EXPECT_EQ(all, first);
  });
}

// As in PyTorch: masked elements get 0, a row of masked elements alone and one with a NaN are NaN.
TEST(Softmax, OfInfinitiesAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_each_setting([&](int threads) {
    for (const std::int64_t width : {3, 40}) {
      const auto softmax_of = [&](float one, float rest) {
        Operand<float> x({1, width}, rest), y({1, width}, 0);
        x.values[1] = one;
        Context c(threads, 0);
        softmax_forward(c.context, x.view(), y.view());
        return y.values;
      };
      EXPECT_EQ(softmax_of(3, -kInfinity)[0], 0);
      EXPECT_EQ(softmax_of(3, -kInfinity)[1], 1);
      for (const float value : softmax_of(-kInfinity, -kInfinity)) EXPECT_TRUE(std::isnan(value));
      for (const float value : softmax_of(NAN, 1)) EXPECT_TRUE(std::isnan(value));
    }
  });
}

TEST(Softmax, RefusesShapesThatDoNotFit) {
  Operand<float> scalar(Shape{}, 0), x({2, 3}, 0), y({3, 2}, 0);
  Context c(1, 0);
  EXPECT_VALUES(shape_error([&] { softmax_forward(c.context, scalar.view(), scalar.view()); }),
                "softmax_forward [] [rows..., width]");
  EXPECT_NE(shape_error([&] { softmax_forward(c.context, x.view(), y.view()); }), "");
}

}  // namespace
}  // namespace engine::ops
