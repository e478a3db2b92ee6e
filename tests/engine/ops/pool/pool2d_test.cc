// Pooling: PyTorch's numbers, the fast kernels against the reference at odd sizes, ties and NaNs.
#include "engine/ops/pool/pool2d.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/pool/pool_cases.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(MaxPool, FastAgreesWithTheReference) {
  for_each_setting([](int threads) {
    for_each_pool(kPools, [&](const PoolCase& p) {
      const auto [found, expected] = run_max_pool(
          p, [&](const auto& operands, auto call) { return run_both(threads, operands, call); });
      EXPECT_EQ(far_apart(found[2], expected[2], 0, 0), "");
      EXPECT_EQ(found[3], found[2]);
      EXPECT_EQ(far_apart(found[4], expected[4], 0, 0), "");
      EXPECT_EQ(far_apart(found[5], expected[5], 0, 0), "");  // sums of small whole numbers
    });
  });
}

TEST(AveragePool, FastAgreesWithTheReference) {
  for_each_setting([](int threads) {
    for_each_pool(kPools, [&](const PoolCase& p) {
      const auto [found, expected] = run_average_pool(
          p, [&](const auto& operands, auto call) { return run_both(threads, operands, call); });
      EXPECT_EQ(far_apart(found[2], expected[2], 1e-5, 1e-6), "");
      EXPECT_EQ(far_apart(found[3], expected[3], 1e-5, 2e-6), "");
    });
  });
}

TEST(GlobalAveragePool, FastAgreesWithTheReference) {
  for_each_setting([](int threads) {
    for (const Shape& in : {Shape{0, 4, 4, 3}, Shape{2, 1, 1, 5}, Shape{3, 4, 4, 512},
                            Shape{5, 3, 7, 19}, Shape{1, 2, 3, 8}})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(in.to_string());
        const auto [found, expected] = run_global_pool(
            in, write,
            [&](const auto& operands, auto call) { return run_both(threads, operands, call); });
        EXPECT_EQ(far_apart(found[2], expected[2], 1e-5, 1e-6), "");
        EXPECT_EQ(far_apart(found[3], expected[3], 1e-6, 1e-6), "");
      }
  });
}

// max_pool2d and avg_pool2d of torch 2 on x = arange(20).reshape(4, 5) * [1, -1, 1, 1, -1], window
// 3, stride 2, padding 1; PyTorch's flat indices are turned into places in the window.
TEST(Pool2d, IsPyTorchsWithPadding) {
  const Pool2dGeometry g{4, 5, 1, 3, 2, 1};
  for_each_setting([&](int threads) {
    Operand<float> x = operand_of<float>(
        {1, 4, 5, 1},
        {0, -1, 2, 3, -4, 5, -6, 7, 8, -9, 10, -11, 12, 13, -14, 15, -16, 17, 18, -19});
    Operand<float> y({1, 2, 3, 1}, 0);
    Operand<std::uint8_t> argmax({1, 2, 3, 1}, 0);
    Context c(threads, 0);
    max_pool2d_forward(c.context,
                       {.geometry = g, .x = x.view(), .y = y.view(), .argmax = argmax.view()});
    EXPECT_EQ(y.values, (std::vector<float>{5, 8, 8, 15, 18, 18}));
    EXPECT_EQ(argmax.values, (std::vector<std::uint8_t>{7, 8, 6, 7, 8, 6}));
    average_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = y.view()});
    EXPECT_EQ(far_apart(y.values,
                        std::vector<double>{-2. / 9, 13. / 9, -2. / 9, -1. / 3, 14. / 3, -1. / 3},
                        1e-6, 0),
              "");
  });
}

// avg_pool2d and max_pool2d of torch 2 with ceil_mode=True on x = arange(15).reshape(3, 5) * [1,
// -1, 1, 1, -1]. A window that sticks out is divided by its places in the padded image: {-4}, {10
// -11}, {12 13}, {-14} below.
TEST(Pool2d, CeilModeIsPyTorchs) {
  struct Case {
    std::int64_t window, stride, padding;
    Shape out;
    std::vector<double> average;
    std::vector<float> largest;
  };
  const Case cases[] = {
      {2, 2, 0, {1, 2, 3, 1}, {-0.5, 5, -6.5, -0.5, 12.5, -14}, {5, 8, -4, 10, 13, -14}},
      {3,
       2,
       1,
       {1, 2, 3, 1},
       {-2. / 9, 13. / 9, -2. / 9, -2. / 9, 23. / 9, -2. / 9},
       {5, 8, 8, 10, 13, 13}},
      {2, 3, 1, {1, 2, 2, 1}, {0, 1.25, 2.5, 6.25}, {0, 3, 10, 13}},
  };
  for_each_setting([&](int threads) {
    for (const Case& each : cases) {
      const Pool2dGeometry g{3, 5, 1, each.window, each.stride, each.padding, true};
      SCOPED_TRACE(pool_name(g, 1));
      ASSERT_EQ((Shape{1, g.out_h(), g.out_w(), 1}), each.out);
      Operand<float> x =
          operand_of<float>({1, 3, 5, 1}, {0, -1, 2, 3, -4, 5, -6, 7, 8, -9, 10, -11, 12, 13, -14});
      Operand<float> y(each.out, 0);
      Context c(threads, 0);
      average_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = y.view()});
      EXPECT_EQ(far_apart(y.values, each.average, 1e-6, 0), "");
      max_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = y.view()});
      EXPECT_EQ(y.values, each.largest);
    }
  });
}

// Sizes of torch 2's avg_pool2d(zeros(n, n), window, stride, padding, ceil_mode=True) for n = 1..8;
// 0: refused.
TEST(Pool2d, CeilModeGivesPyTorchsSizes) {
  const std::pair<Pool2dGeometry, std::vector<std::int64_t>> cases[] = {
      {{0, 0, 1, 2, 2, 0, true}, {1, 1, 2, 2, 3, 3, 4, 4}},
      {{0, 0, 1, 3, 2, 0, true}, {0, 1, 1, 2, 2, 3, 3, 4}},
      {{0, 0, 1, 3, 2, 1, true}, {1, 2, 2, 3, 3, 4, 4, 5}},
      {{0, 0, 1, 2, 3, 1, true}, {1, 1, 2, 2, 2, 3, 3, 3}},
      {{0, 0, 1, 3, 3, 1, true}, {1, 1, 2, 2, 2, 3, 3, 3}},
      {{0, 0, 1, 5, 1, 2, true}, {1, 2, 3, 4, 5, 6, 7, 8}},
      {{0, 0, 1, 4, 3, 2, true}, {1, 2, 2, 2, 3, 3, 3, 4}},
  };
  for (const auto& [geometry, sizes] : cases)
    for (std::int64_t n = 1; n <= 8; ++n)
      EXPECT_EQ(geometry.windows(n), sizes[static_cast<std::size_t>(n - 1)])
          << pool_name(geometry, 1) << " of " << n;
}

TEST(MaxPool, TheFirstOfEqualsWinsAndANanWinsOverAll) {
  for_each_setting([](int threads) {
    expect_first_of_equals(
        [&](const auto& operands, auto call) { return run_both(threads, operands, call); });
  });
}

TEST(Pool2d, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  const Pool2dGeometry g{4, 4, 2, 2, 2, 0};
  Operand<float> x({1, 4, 4, 2}, 0), y({1, 2, 2, 2}, 0), wrong({1, 2, 3, 2}, 0);
  EXPECT_THROW(max_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = wrong.view()}),
               ShapeError);
  EXPECT_THROW(average_pool2d_forward(
                   c.context, {.geometry = {4, 4, 2, 16, 1, 0}, .x = x.view(), .y = y.view()}),
               ShapeError);
  EXPECT_THROW(average_pool2d_forward(
                   c.context, {.geometry = {4, 4, 2, 2, 2, 2}, .x = x.view(), .y = y.view()}),
               ShapeError);
  EXPECT_THROW(average_pool2d_forward(
                   c.context, {.geometry = {4, 4, 2, 5, 2, 0}, .x = x.view(), .y = y.view()}),
               ShapeError);
  Operand<std::uint8_t> argmax({1, 2, 2, 1}, 0);
  EXPECT_THROW(
      max_pool2d_forward(c.context,
                         {.geometry = g, .x = x.view(), .y = y.view(), .argmax = argmax.view()}),
      ShapeError);
}

}  // namespace
}  // namespace engine::ops
