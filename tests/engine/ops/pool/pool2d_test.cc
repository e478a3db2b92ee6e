// Pooling: PyTorch's numbers, the fast kernels against the reference at odd sizes, ties and NaNs.
#include "engine/ops/pool/pool2d.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Small whole numbers: many ties.
Operand<float> tied_operand(const Shape& shape, std::uint32_t seed) {
  Operand<float> operand = random_operand(shape, seed);
  for (float& value : operand.values) value = std::round(3 * value);
  return operand;
}

const Pool2dGeometry kGeometries[] = {
    {28, 28, 16, 2, 2, 0},     {5, 7, 3, 2, 2, 0},        {4, 4, 33, 2, 2, 0},
    {3, 2, 1, 2, 2, 0},        {2, 3, 8, 2, 2, 0},        {6, 5, 10, 3, 2, 1},
    {7, 7, 17, 3, 1, 1},       {9, 4, 5, 2, 3, 1},        {5, 5, 4, 5, 5, 2},
    {15, 15, 7, 15, 1, 7},     {6, 6, 24, 3, 2, 0},       {7, 4, 19, 1, 2, 0},
    {5, 7, 3, 2, 2, 0, true},  {4, 4, 33, 2, 2, 0, true}, {1, 1, 5, 2, 2, 0, true},
    {6, 5, 10, 3, 2, 1, true}, {3, 5, 17, 2, 3, 1, true}, {8, 9, 8, 4, 3, 2, true},
};

std::string pool_name(const Pool2dGeometry& g, std::int64_t n) {
  return "n " + std::to_string(n) + " h " + std::to_string(g.in_h) + " w " +
         std::to_string(g.in_w) + " c " + std::to_string(g.channels) + " window " +
         std::to_string(g.window) + " stride " + std::to_string(g.stride) + " padding " +
         std::to_string(g.padding) + (g.ceil_mode ? " ceil" : "");
}

// Calls check(geometry, n, threads, write) for all of them.
template <class Check>
void for_each_pool_case(Check check) {
  for_each_setting([&](int threads) {
    for (const Pool2dGeometry& g : kGeometries) {
      for (const std::int64_t n : {0, 1, 3}) {
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(pool_name(g, n));
          check(g, n, threads, write);
        }
      }
    }
  });
}

TEST(MaxPool, FastAgreesWithTheReference) {
  for_each_pool_case([](const Pool2dGeometry& g, std::int64_t n, int threads, Write write) {
    const Shape in{n, g.in_h, g.in_w, g.channels}, out{n, g.out_h(), g.out_w(), g.channels};
    Operand<float> x = tied_operand(in, 1), y = gemm_test::nan_operand(out), only_y = y,
                   dy = tied_operand(out, 2);
    Operand<float> dx = write == Write::kAdd ? tied_operand(in, 3) : gemm_test::nan_operand(in);
    Operand<double> wide_x = widen(x), wide_y(out, 0), wide_dy = widen(dy), wide_dx = widen(dx);
    Operand<std::uint8_t> argmax(out, 255), wide_argmax(out, 255);
    Context c(threads, 0);
    max_pool2d_forward(c.context,
                       {.geometry = g, .x = x.view(), .y = y.view(), .argmax = argmax.view()});
    max_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = only_y.view()});
    max_pool2d_forward(
        c.context,
        {.geometry = g, .x = wide_x.view(), .y = wide_y.view(), .argmax = wide_argmax.view()});
    EXPECT_EQ(far_apart(y.values, wide_y.values, 0, 0), "");
    EXPECT_EQ(only_y.values, y.values);
    EXPECT_EQ(argmax.values, wide_argmax.values);
    max_pool2d_backward(
        c.context,
        {.geometry = g, .dy = dy.view(), .argmax = argmax.view(), .dx = dx.view(), .write = write});
    max_pool2d_backward(c.context, {.geometry = g,
                                    .dy = wide_dy.view(),
                                    .argmax = argmax.view(),
                                    .dx = wide_dx.view(),
                                    .write = write});
    EXPECT_EQ(far_apart(dx.values, wide_dx.values, 0, 0),
              "");  // sums of small whole numbers are exact
  });
}

TEST(AveragePool, FastAgreesWithTheReference) {
  for_each_pool_case([](const Pool2dGeometry& g, std::int64_t n, int threads, Write write) {
    const Shape in{n, g.in_h, g.in_w, g.channels}, out{n, g.out_h(), g.out_w(), g.channels};
    Operand<float> x = random_operand(in, 1), y = gemm_test::nan_operand(out),
                   dy = random_operand(out, 2), dx = output(in, write);
    Operand<double> wide_x = widen(x), wide_y(out, 0), wide_dy = widen(dy), wide_dx = widen(dx);
    Context c(threads, 0);
    average_pool2d_forward(c.context, {.geometry = g, .x = x.view(), .y = y.view()});
    average_pool2d_forward(c.context, {.geometry = g, .x = wide_x.view(), .y = wide_y.view()});
    EXPECT_EQ(far_apart(y.values, wide_y.values, 1e-5, 1e-6), "");
    average_pool2d_backward(c.context,
                            {.geometry = g, .dy = dy.view(), .dx = dx.view(), .write = write});
    average_pool2d_backward(
        c.context, {.geometry = g, .dy = wide_dy.view(), .dx = wide_dx.view(), .write = write});
    EXPECT_EQ(far_apart(dx.values, wide_dx.values, 1e-5, 2e-6), "");
  });
}

TEST(GlobalAveragePool, FastAgreesWithTheReference) {
  for_each_setting([](int threads) {
    for (const Shape& in : {Shape{0, 4, 4, 3}, Shape{2, 1, 1, 5}, Shape{3, 4, 4, 512},
                            Shape{5, 3, 7, 19}, Shape{1, 2, 3, 8}}) {
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(in.to_string());
        const Shape out{in[0], in[3]};
        Operand<float> x = random_operand(in, 1), y = gemm_test::nan_operand(out),
                       dy = random_operand(out, 2), dx = output(in, write);
        Operand<double> wide_x = widen(x), wide_y(out, 0), wide_dy = widen(dy), wide_dx = widen(dx);
        Context c(threads, 0);
        global_average_pool_forward(c.context, x.view(), y.view());
        global_average_pool_forward(c.context, wide_x.view(), wide_y.view());
        EXPECT_EQ(far_apart(y.values, wide_y.values, 1e-5, 1e-6), "");
        global_average_pool_backward(c.context, dy.view(), dx.view(), write);
        global_average_pool_backward(c.context, wide_dy.view(), wide_dx.view(), write);
        EXPECT_EQ(far_apart(dx.values, wide_dx.values, 1e-6, 1e-6), "");
      }
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

// Windows of torch 2's max_pool2d: {3 1 3 0} -> first 3; {2 5 5 5} -> first 5; {-1 -2 -2 -1} ->
// first -1; {nan 4 1 nan} -> nan, the later one.
TEST(MaxPool, TheFirstOfEqualsWinsAndANanWinsOverAll) {
  const Pool2dGeometry g{4, 4, 1, 2, 2, 0};
  const float nan = std::nanf("");
  for_each_setting([&](int threads) {
    for (const std::int64_t channels : {1, 8, 16, 19}) {
      Pool2dGeometry wide = g;
      wide.channels = channels;
      const std::vector<float> image{3, 1, 2, 5, 3, 0, 5, 5, -1, -2, nan, 4, -2, -1, 1, nan};
      Operand<float> x({1, 4, 4, channels}, 0), y({1, 2, 2, channels}, 0), dx = x;
      for (std::size_t i = 0; i < x.values.size(); ++i)
        x.values[i] = image[i / static_cast<std::size_t>(channels)];
      Operand<std::uint8_t> argmax({1, 2, 2, channels}, 9);
      Context c(threads, 0);
      max_pool2d_forward(c.context,
                         {.geometry = wide, .x = x.view(), .y = y.view(), .argmax = argmax.view()});
      const float values[] = {3, 5, -1};
      const std::uint8_t winners[] = {0, 1, 0, 3};
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        const std::size_t pixel = i / static_cast<std::size_t>(channels);
        if (pixel < 3) {
          EXPECT_EQ(y.values[i], values[pixel]);
        } else {
          EXPECT_TRUE(std::isnan(y.values[i]));
        }
        EXPECT_EQ(argmax.values[i], winners[pixel]) << i;
      }
      // A NaN of the gradient goes to its winner alone.
      max_pool2d_backward(c.context, {.geometry = wide,
                                      .dy = y.view(),
                                      .argmax = argmax.view(),
                                      .dx = dx.view(),
                                      .write = Write::kOverwrite});
      std::size_t nans = 0;
      for (const float value : dx.values) nans += std::isnan(value);
      EXPECT_EQ(nans, static_cast<std::size_t>(channels));
    }
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
