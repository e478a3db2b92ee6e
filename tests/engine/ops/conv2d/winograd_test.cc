// Winograd's convolution: against float64 at odd sizes on every instruction set, beside the direct
// kernels' errors, and that neither threads nor the batch change its bits.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/conv2d/winograd_cpu.h"
#include "engine/ops/conv2d/winograd_rule.h"
#include "tests/engine/ops/common/products.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::wide_magnitudes;

ConvProduct square(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t in,
                   std::int64_t out, std::int64_t padding = 1, std::int64_t kernel = 3) {
  return {n, {h, w, in, out, kernel, kernel, 1, padding}};
}

// Whole and cut tiles, channels that fill vectors, panels and chunks and that do not, one tile and
// more than a block of them.
const ConvProduct kCases[] = {square(4, 8, 8, 16, 16),         square(3, 9, 10, 17, 33),
                              square(5, 9, 10, 40, 36, 0),     square(2, 8, 13, 33, 50, 2),
                              square(8, 4, 4, 130, 33),        square(2, 29, 31, 16, 47),
                              square(8, 4, 4, 16, 140),        square(1, 12, 12, 100, 70),
                              square(60, 7, 7, 32, 32, 1),     square(2, 33, 34, 20, 18, 1),
                              square(4, 8, 8, 16, 16, 2, 5),   square(3, 9, 11, 17, 33, 2, 5),
                              square(2, 14, 10, 40, 36, 0, 5), square(1, 15, 16, 33, 50, 4, 5),
                              square(9, 6, 6, 130, 33, 3, 5),  square(70, 14, 14, 16, 32, 2, 5)};

// All three passes, on inputs of at least `least`.
HostProduct start_of(const ConvProduct& c, Write write, float least = -1) {
  HostProduct o = operands_of(c, write);
  for (float& value : o.x.values) value = std::max(value, least);
  return o;
}
HostProduct run(const ConvProduct& c, int threads, Convolutions convolutions,
                Write write = Write::kOverwrite, float least = -1) {
  HostProduct o = start_of(c, write, least);
  Context context(threads, c.scratch(threads, DType::kF32));
  context.context.convolutions = convolutions;
  c.run(context.context, o);
  return o;
}

TEST(Winograd, AgreesWithFloat64) {
  for (const ConvProduct& c : kCases) {
    ASSERT_TRUE(suits_winograd(c.g, c.n) && suits_winograd(c.g, kForwardBatch)) << c.text();
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const WideProduct expected = loops_of(c, start_of(c, write), widen, widen),
                        bound = bound_of(c, start_of(c, write), wide_magnitudes, wide_magnitudes);
      for_each_setting([&](int threads) {
        SCOPED_TRACE(c.text() + (write == Write::kAdd ? " add" : ""));
        expect_within(run(c, threads, Convolutions::kAuto, write), expected, bound);
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
  for (const ConvProduct& c :
       {square(4, 16, 16, 64, 64), square(4, 8, 8, 256, 64), square(16, 4, 4, 64, 256),
        square(32, 14, 14, 16, 32, 2, 5), square(4, 8, 8, 64, 64, 2, 5)}) {
    for (const float least : {-1.f, 0.f}) {  // 0: as after a ReLU
      const WideProduct exact = loops_of(c, start_of(c, Write::kOverwrite, least), widen, widen);
      for (const CpuIsa isa : gemm_test::isas_here()) {
        const gemm_test::ScopedIsa scope(isa);
        SCOPED_TRACE(std::string(to_string(isa)) + ", " + c.text());
        const HostProduct winograd = run(c, 1, Convolutions::kAuto, Write::kOverwrite, least),
                          direct = run(c, 1, Convolutions::kDirect, Write::kOverwrite, least);
        const auto compare_errors = [&](auto member, auto exact_member) {
          const auto& expected = (exact.*exact_member).values;
          const Errors a = errors((winograd.*member).values, expected),
                       b = errors((direct.*member).values, expected);
          EXPECT_LE(a.largest, 4 * b.largest);
          EXPECT_LE(a.mean_square, 16 * b.mean_square);
          EXPECT_NE((winograd.*member).values, (direct.*member).values);
        };
        compare_errors(&HostProduct::y, &WideProduct::y);
        compare_errors(&HostProduct::dx, &WideProduct::dx);
        compare_errors(&HostProduct::dweight, &WideProduct::dweight);
      }
    }
  }
}

TEST(Winograd, ThreadsDoNotChangeItsBits) {
  for (const ConvProduct& c : kCases) {
    SCOPED_TRACE(c.text());
    const HostProduct one = run(c, 1, Convolutions::kAuto);
    for (const int threads : {2, 3, 16}) {
      const HostProduct more = run(c, threads, Convolutions::kAuto);
      EXPECT_EQ(one.y.values, more.y.values);
      EXPECT_EQ(one.dx.values, more.dx.values);
      if (weights_suit_winograd(c.g, c.n)) {
        EXPECT_EQ(one.dweight.values, more.dweight.values);
      }
    }
  }
}

TEST(Winograd, AnImageHasTheSameOutputInAnyBatch) {
  for (const ConvProduct& c : {square(9, 4, 4, 16, 48), square(9, 4, 4, 64, 48),
                               square(9, 4, 4, 160, 48), square(9, 14, 14, 16, 32, 2, 5)})
    expect_images_alone(c, {1, 2, 8}, [](const ConvProduct& part, int threads) {
      return run(part, threads, Convolutions::kAuto);
    });
}

TEST(Winograd, ScratchOfALargerBatchServesASmallerOne) {
  for (const ConvProduct& c : kCases)
    for (const int threads : {1, 2, 3, 5, 16}) {
      SCOPED_TRACE(c.text() + ", " + std::to_string(threads) + " threads");
      expect_growing_scratch(300, [&](std::int64_t n) {
        return ConvProduct{n, c.g}.scratch(threads, DType::kF32);
      });
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
