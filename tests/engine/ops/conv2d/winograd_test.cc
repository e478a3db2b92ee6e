// Winograd's convolution: against float64 at odd sizes on every instruction set, beside the direct
// kernels' errors, and that neither threads nor the batch change its bits.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/conv2d/conv2d_reference.h"
#include "engine/ops/conv2d/winograd_cpu.h"
#include "engine/ops/conv2d/winograd_rule.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;
using gemm_test::nan_operand;
using gemm_test::wide_magnitudes;

struct WinogradCase {
  std::int64_t n, h, w, in, out, padding = 1, kernel = 3;

  Conv2dGeometry g() const { return {h, w, in, out, kernel, kernel, 1, padding}; }
  Shape x() const { return {n, h, w, in}; }
  Shape y() const { return {n, g().out_h(), g().out_w(), out}; }
  Shape weight() const { return {kernel, kernel, in, out}; }
  std::string text() const {
    return "n " + std::to_string(n) + " map " + std::to_string(h) + "x" + std::to_string(w) +
           " channels " + std::to_string(in) + " -> " + std::to_string(out) + " padding " +
           std::to_string(padding) + " kernel " + std::to_string(kernel);
  }
};

// Whole and cut tiles, channels that fill vectors, panels and chunks and that do not, one tile and
// more than a block of them.
const WinogradCase kCases[] = {
    {4, 8, 8, 16, 16},         {3, 9, 10, 17, 33},        {5, 9, 10, 40, 36, 0},
    {2, 8, 13, 33, 50, 2},     {8, 4, 4, 130, 33},        {2, 29, 31, 16, 47},
    {8, 4, 4, 16, 140},        {1, 12, 12, 100, 70},      {60, 7, 7, 32, 32, 1},
    {2, 33, 34, 20, 18, 1},    {4, 8, 8, 16, 16, 2, 5},   {3, 9, 11, 17, 33, 2, 5},
    {2, 14, 10, 40, 36, 0, 5}, {1, 15, 16, 33, 50, 4, 5}, {9, 6, 6, 130, 33, 3, 5},
    {70, 14, 14, 16, 32, 2, 5}};

struct Results {
  std::vector<float> y, dx, dweight, dbias;
};

// All three passes. `add`: to what random_operand(.., 77) gives, and without a bias forward.
Results run(const WinogradCase& c, int threads, Convolutions convolutions,
            Write write = Write::kOverwrite, float least = -1) {
  auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2),
       weight = random_operand(c.weight(), 3), bias = random_operand({c.out}, 4);
  for (float& value : x.values) value = std::max(value, least);
  if (write == Write::kAdd) bias = {};
  auto y = nan_operand(c.y()), dx = output(c.x(), write), dweight = output(c.weight(), write),
       dbias = output({c.out}, write);
  Context context(threads, conv2d_scratch_bytes(c.g(), c.n, DType::kF32, threads));
  context.context.convolutions = convolutions;
  conv2d_forward(context.context, {.geometry = c.g(),
                                   .x = x.view(),
                                   .weight = weight.view(),
                                   .y = y.view(),
                                   .bias = bias.view()});
  conv2d_backward_data(context.context, {.geometry = c.g(),
                                         .dy = dy.view(),
                                         .weight = weight.view(),
                                         .dx = dx.view(),
                                         .write = write});
  conv2d_backward_weights(context.context, {.geometry = c.g(),
                                            .x = x.view(),
                                            .dy = dy.view(),
                                            .dweight = dweight.view(),
                                            .dbias = dbias.view(),
                                            .write = write});
  return {y.values, dx.values, dweight.values, dbias.values};
}

struct WideResults {
  std::vector<double> y, dx, dweight, dbias;
};

// The same by the plain loops; `wide` makes float64 operands: the values, or their magnitudes.
template <class Wide>
WideResults reference(const WinogradCase& c, Wide wide, Write write, float least = -1) {
  auto from = random_operand(c.x(), 1);
  for (float& value : from.values) value = std::max(value, least);
  auto x = wide(from), dy = wide(random_operand(c.y(), 2)),
       weight = wide(random_operand(c.weight(), 3)), bias = wide(random_operand({c.out}, 4)),
       y = wide(nan_operand(c.y()));
  const bool add = write == Write::kAdd;
  if (add) bias = {};
  auto start = [&](const Shape& shape) {
    return add ? wide(output(shape, write)) : Operand<double>(shape, 0);
  };
  auto dx = start(c.x()), dweight = start(c.weight()), dbias = start({c.out});
  reference::conv2d_forward<double>({.geometry = c.g(),
                                     .x = x.view(),
                                     .weight = weight.view(),
                                     .y = y.view(),
                                     .bias = bias.view()},
                                    0, c.n);
  reference::conv2d_backward_data<double>({.geometry = c.g(),
                                           .dy = dy.view(),
                                           .weight = weight.view(),
                                           .dx = dx.view(),
                                           .write = write},
                                          0, c.n);
  const Conv2dBackwardWeights weights{.geometry = c.g(),
                                      .x = x.view(),
                                      .dy = dy.view(),
                                      .dweight = dweight.view(),
                                      .dbias = dbias.view(),
                                      .write = write};
  reference::conv2d_backward_weights<double>(weights, 0, c.kernel * c.kernel * c.in);
  reference::conv2d_backward_bias<double>(weights);
  return {y.values, dx.values, dweight.values, dbias.values};
}

TEST(Winograd, AgreesWithFloat64) {
  for (const WinogradCase& c : kCases) {
    ASSERT_TRUE(suits_winograd(c.g(), c.n) && suits_winograd(c.g(), kForwardBatch)) << c.text();
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const WideResults expected = reference(c, widen, write),
                        bound = reference(c, wide_magnitudes, write);
      for_each_setting([&](int threads) {
        SCOPED_TRACE(c.text() + (write == Write::kAdd ? " add" : ""));
        const Results found = run(c, threads, Convolutions::kAuto, write);
        EXPECT_EQ(difference(found.y, expected.y, bound.y), "");
        EXPECT_EQ(difference(found.dx, expected.dx, bound.dx), "");
        EXPECT_EQ(difference(found.dweight, expected.dweight, bound.dweight), "");
        EXPECT_EQ(difference(found.dbias, expected.dbias, bound.dbias), "");
      });
    }
  }
}

struct Errors {
  double largest = 0, mean_square = 0;
};
Errors errors(const std::vector<float>& found, const std::vector<double>& expected) {
  Errors e;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(found[i] - expected[i]);
    e.largest = std::max(e.largest, error);
    e.mean_square += error * error;
  }
  return e;
}

// The reason why its points and its short sums are what they are (winograd_tiles.h).
TEST(Winograd, ErrsAtMostFourTimesAsMuchAsTheDirectKernels) {
  for (const WinogradCase& c : {WinogradCase{4, 16, 16, 64, 64},
                                {4, 8, 8, 256, 64},
                                {16, 4, 4, 64, 256},
                                {32, 14, 14, 16, 32, 2, 5},
                                {4, 8, 8, 64, 64, 2, 5}}) {
    for (const float least : {-1.f, 0.f}) {  // 0: as after a ReLU
      const WideResults exact = reference(c, widen, Write::kOverwrite, least);
      for (const CpuIsa isa : gemm_test::isas_here()) {
        const gemm_test::ScopedIsa scope(isa);
        SCOPED_TRACE(std::string(to_string(isa)) + ", " + c.text());
        const auto results = [&](Convolutions convolutions) {
          return run(c, 1, convolutions, Write::kOverwrite, least);
        };
        const Results winograd = results(Convolutions::kAuto),
                      direct = results(Convolutions::kDirect);
        const auto compare = [&](auto member, auto exact_member) {
          const Errors a = errors(winograd.*member, exact.*exact_member),
                       b = errors(direct.*member, exact.*exact_member);
          EXPECT_LE(a.largest, 4 * b.largest);
          EXPECT_LE(a.mean_square, 16 * b.mean_square);
          EXPECT_NE(winograd.*member, direct.*member);
        };
        compare(&Results::y, &WideResults::y);
        compare(&Results::dx, &WideResults::dx);
        compare(&Results::dweight, &WideResults::dweight);
      }
    }
  }
}

TEST(Winograd, ThreadsDoNotChangeItsBits) {
  for (const WinogradCase& c : kCases) {
    const Results one = run(c, 1, Convolutions::kAuto);
    for (const int threads : {2, 3, 16}) {
      const Results more = run(c, threads, Convolutions::kAuto);
      EXPECT_EQ(one.y, more.y) << c.text();
      EXPECT_EQ(one.dx, more.dx) << c.text();
      if (weights_suit_winograd(c.g(), c.n)) {
        EXPECT_EQ(one.dweight, more.dweight) << c.text();
      }
    }
  }
}

// An evaluation gives the same report for any number of ranks, which have batches of other sizes.
TEST(Winograd, AnImageHasTheSameOutputInAnyBatch) {
  for (const WinogradCase c : {WinogradCase{9, 4, 4, 16, 48},
                               {9, 4, 4, 64, 48},
                               {9, 4, 4, 160, 48},
                               {9, 14, 14, 16, 32, 2, 5}}) {
    const std::vector<float> all = run(c, 1, Convolutions::kAuto).y;
    for (const std::int64_t n : {1, 2, 8}) {
      WinogradCase few = c;
      few.n = n;
      const std::vector<float> some = run(few, 2, Convolutions::kAuto).y;
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << n << " of " << c.text();
    }
  }
}

TEST(Winograd, ScratchOfALargerBatchServesASmallerOne) {
  for (const WinogradCase& c : kCases) {
    for (const int threads : {1, 2, 3, 5, 16}) {
      std::size_t before = 0;
      for (std::int64_t n = 0; n < 300; n = n < 40 ? n + 1 : n + 37) {
        const std::size_t bytes = conv2d_scratch_bytes(c.g(), n, DType::kF32, threads);
        EXPECT_GE(bytes, before) << c.text() << ", " << n << " images, " << threads << " threads";
        before = bytes;
      }
    }
  }
}

TEST(WinogradRule, ChoosesByShape) {
  const auto suits = [](std::int64_t side, std::int64_t in, std::int64_t out, std::int64_t n = 32,
                        std::int64_t kernel = 3, std::int64_t stride = 1) {
    return suits_winograd({side, side, in, out, kernel, kernel, stride, kernel / 2}, n);
  };
  for (const std::int64_t n : {kForwardBatch, std::int64_t{32}})  // the residual networks' layers
    EXPECT_TRUE(suits(32, 64, 64, n) && suits(16, 128, 128, n) && suits(8, 256, 256, n) &&
                suits(4, 512, 512, n) && suits(56, 64, 64, n));
  EXPECT_TRUE(suits(28, 16, 16));
  EXPECT_FALSE(suits(32, 3, 64) || suits(28, 1, 16));    // first layers
  EXPECT_FALSE(suits(2, 512, 512) || suits(5, 64, 64));  // tiles that are half outside
  EXPECT_FALSE(suits(4, 512, 512, 1));                   // the weights are more than the images
  EXPECT_FALSE(suits(32, 64, 64, 32, 7) || suits(32, 64, 64, 32, 1));
  EXPECT_FALSE(suits(32, 64, 64, 32, 3, 2));
  EXPECT_TRUE(suits(14, 16, 32, kForwardBatch, 5) && suits(14, 32, 16, 32, 5));  // convnet's
  EXPECT_FALSE(suits(28, 1, 16, 32, 5) || suits(28, 16, 16, 32, 5, 2));
  EXPECT_FALSE(suits_winograd({14, 14, 16, 32, 5, 3, 1, 1}, 32));  // not square
}

TEST(WinogradRule, LeavesMoreToProductsInBf16) {
  const auto suits = [](std::int64_t side, std::int64_t channels, bool bf16) {
    return suits_winograd({side, side, channels, channels, 3, 3, 1, 1}, 32, bf16);
  };
  EXPECT_TRUE(suits(28, 16, false) && suits(16, 32, false));
  EXPECT_FALSE(suits(28, 16, true) || suits(16, 32, true));
  EXPECT_FALSE(suits_winograd({16, 16, 128, 128, 5, 5, 1, 2}, 32, true));
  EXPECT_TRUE(suits(32, 64, true) && suits(16, 128, true) && suits(4, 512, true));
}

TEST(WinogradRule, LeavesNarrowLayersGradientOfTheWeightsAlone) {
  const auto suits = [](std::int64_t side, std::int64_t in, std::int64_t out,
                        std::int64_t kernel = 3) {
    return weights_suit_winograd({side, side, in, out, kernel, kernel, 1, kernel / 2}, 32);
  };
  EXPECT_TRUE(suits(16, 32, 32) && suits(32, 64, 64) && suits(4, 512, 512));
  EXPECT_FALSE(suits(28, 16, 16) || suits(14, 16, 32) || suits(14, 32, 16) || suits(2, 512, 512));
  EXPECT_TRUE(suits(14, 16, 32, 5));
}

}  // namespace
}  // namespace engine::ops
