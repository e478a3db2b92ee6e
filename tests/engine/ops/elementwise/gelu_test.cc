// gelu against its definition in float64 over the whole range, PyTorch's values, aliasing and
// gradients.
#include "engine/ops/elementwise/gelu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ops/common/kernel_runs.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// gelu(x, approximate) of torch 2 in float64.
TEST(Gelu, IsPyTorchs) {
  Operand<double> x = operand_of<double>({5}, {-3, -0.5, 0, 0.7, 4}), y({5}, 9);
  Context c(1, 0);
  gelu_forward(c.context, x.view(), GeluKind::kExact, y.view());
  EXPECT_EQ(far_apart(y.values,
                      std::vector<double>{-0.00404969409489031, -0.15426876936299344, 0.0,
                                          0.5306254434438489, 3.9998733150326675},
                      1e-14, 1e-16),
            "");
  gelu_forward(c.context, x.view(), GeluKind::kTanh, y.view());
  EXPECT_EQ(far_apart(y.values,
                      std::vector<double>{-0.0036373920817729943, -0.15428599017485606, 0.0,
                                          0.5305701347051167, 3.9999297540518075},
                      1e-14, 1e-16),
            "");
}

// A dense walk over [-20, 20] and the ends of the range.
Operand<float> dense_walk() {
  std::vector<float> values{0.f,   -0.f, 1e-30f, -1e-30f, 1e-4f, 88.f,
                            -88.f, 1e4f, -1e4f,  1e18f,   -1e12f};
  for (int i = -200'000; i <= 200'000; ++i) values.push_back(static_cast<float>(i) * 1e-4f);
  return operand_of<float>({static_cast<std::int64_t>(values.size())}, values);
}

TEST(Gelu, IsWithinAMillionthOfItsDefinitionEverywhere) {
  Operand<float> x = dense_walk(), dy(x.shape, 1.f);
  Operand<double> wide = widen(x), wide_dy = widen(dy);
  for_each_setting([&](int threads) {
    Context c(threads, 0);
    for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
      Operand<float> y = gemm_test::nan_operand(x.shape), dx = y;
      Operand<double> wide_y(x.shape, 0), wide_dx(x.shape, 0);
      gelu_forward(c.context, x.view(), kind, y.view());
      gelu_forward(c.context, wide.view(), kind, wide_y.view());
      gelu_backward(c.context, x.view(), dy.view(), kind, dx.view(), Write::kOverwrite);
      gelu_backward(c.context, wide.view(), wide_dy.view(), kind, wide_dx.view(),
                    Write::kOverwrite);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const double size = std::fabs(wide.values[i]);
        ASSERT_LE(std::fabs(y.values[i] - wide_y.values[i]),
                  3e-7 * std::fmin(size, 1) + 3e-7 * std::fabs(wide_y.values[i]))
            << "x = " << x.values[i];
        ASSERT_LE(std::fabs(dx.values[i] - wide_dx.values[i]), 1e-6) << "x = " << x.values[i];
      }
      const std::vector<float> expected = y.values;
      Operand<float> same = x;
      gelu_forward(c.context, same.view(), kind, same.view());  // in place
      EXPECT_EQ(same.values, expected);
    }
  });
}

TEST(Gelu, GradientsAtOddSizesInPlaceAndAdded) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : {0, 1, 7, 16, 17, 33, 4097, 9999}) {
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
          const Given operands[] = {random_operand({count}, 1), random_operand({count}, 2),
                                    random_operand({count}, 2), output({count}, write)};
          const auto [found, expected] = run_both(
              threads, operands,
              [&](KernelContext& c, TensorView x, TensorView dy, TensorView same, TensorView dx) {
                gelu_backward(c, x, dy, kind, dx, write);
                gelu_backward(c, x, same, kind, same, Write::kOverwrite);  // in place
              });
          EXPECT_EQ(far_apart(found[3], expected[3], 1e-6, 1e-6), "");
          if (write == Write::kOverwrite) {
            EXPECT_EQ(found[2], found[3]);
          }
        }
      }
    }
  });
}

TEST(Gelu, PassesANanOn) {
  for_each_setting([](int) {
    for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
      Operand<float> x({3}, std::nanf("")), y({3}, 0);
      Context c(1, 0);
      gelu_forward(c.context, x.view(), kind, y.view());
      for (const float value : y.values) EXPECT_TRUE(std::isnan(value));
    }
  });
}

TEST(Gelu, RefusesOperandsThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({4}, 0), y({5}, 0);
  Operand<double> wide({4}, 0);
  EXPECT_THROW(gelu_forward(c.context, x.view(), GeluKind::kTanh, y.view()), ShapeError);
  EXPECT_THROW(gelu_forward(c.context, x.view(), GeluKind::kTanh, wide.view()), ShapeError);
  EXPECT_THROW(gelu_backward(c.context, x.view(), x.view(), GeluKind::kTanh, y.view(), Write::kAdd),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
