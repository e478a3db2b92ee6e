// The error bounds that simd_math.h states, over all of the range, with the vectors that the test
// is compiled for.
#define ENGINE_ISA_NAMESPACE isa_test
#include "engine/ops/common/simd_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace engine::ops::isa_test {
namespace {

// Walks over [first, last] in `count` steps; body(x) is called with each.
template <class Body>
void walk(double first, double last, int count, Body body) {
  for (int i = 0; i <= count; ++i) body(static_cast<float>(first + (last - first) * i / count));
}

float lane(Floats v) { return v[kWidth - 1]; }

TEST(SimdMath, ExpIsWithinItsBound) {
  double worst = 0;
  walk(-87.3, 88.7, 2'000'000, [&](float x) {
    const double expected = std::exp(static_cast<double>(x));
    worst = std::fmax(worst, std::fabs(lane(exp(broadcast(x))) / expected - 1));
  });
  EXPECT_LT(worst, 2e-7);
  walk(-110, -87.3, 10'000, [&](float x) {
    ASSERT_LE(std::fabs(lane(exp(broadcast(x))) - std::exp(static_cast<double>(x))), 0x1p-149) << x;
  });
  EXPECT_EQ(lane(exp(broadcast(0.f))), 1);
  EXPECT_EQ(lane(exp(broadcast(-std::numeric_limits<float>::infinity()))), 0);
  EXPECT_TRUE(std::isinf(lane(exp(broadcast(89.f)))));
  EXPECT_TRUE(std::isinf(lane(exp(broadcast(1e30f)))));
  EXPECT_TRUE(std::isnan(lane(exp(broadcast(std::nanf(""))))));
}

TEST(SimdMath, Exp2IsWithinItsBound) {
  double worst = 0;
  walk(-126, 127, 2'000'000, [&](float x) {
    const double expected = std::exp2(static_cast<double>(x));
    worst = std::fmax(worst, std::fabs(lane(exp2(broadcast(x))) / expected - 1));
  });
  EXPECT_LT(worst, 2e-7);
  walk(-160, -126, 10'000, [&](float x) {
    ASSERT_LE(std::fabs(lane(exp2(broadcast(x))) - std::exp2(static_cast<double>(x))), 0x1p-126)
        << x;
  });
  EXPECT_EQ(lane(exp2(broadcast(0.f))), 1);
  EXPECT_EQ(lane(exp2(broadcast(-150.f))), 0);
  EXPECT_EQ(lane(exp2(broadcast(-std::numeric_limits<float>::infinity()))), 0);
  EXPECT_TRUE(std::isnan(lane(exp2(broadcast(std::nanf("77"))))));
}

TEST(SimdMath, LogIsWithinItsBound) {
  double worst = 0;
  const auto compare = [&](float x) {
    const double expected = std::log(static_cast<double>(x));
    worst = std::fmax(
        worst, std::fabs(lane(log(broadcast(x))) - expected) / std::fmax(1, std::fabs(expected)));
  };
  walk(0.3, 3, 1'000'000, compare);
  walk(-126, 127.9, 1'000'000, [&](float x) { compare(std::exp2(x)); });
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(lane(log(broadcast(1.f))), 0);
  EXPECT_TRUE(std::isnan(lane(log(broadcast(std::nanf(""))))));
  EXPECT_TRUE(std::isnan(lane(log(broadcast(std::numeric_limits<float>::infinity())))));
}

TEST(SimdMath, SumsOfFourVectorsStandSideBySide) {
  float lanes[4][kWidth], sums[4];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < kWidth; ++j) lanes[i][j] = static_cast<float>(100 * i + j);
  store_quad(sums, horizontal_sums(load(lanes[0]), load(lanes[1]), load(lanes[2]), load(lanes[3])));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(sums[i], static_cast<float>(100 * i * kWidth + kWidth * (kWidth - 1) / 2));
}

TEST(SimdMath, NormalDistributionIsWithinItsBound) {
  double worst_below = 0, worst_density = 0;
  walk(-12, 12, 2'000'000, [&](float x) {
    const double below = std::erfc(-static_cast<double>(x) / std::numbers::sqrt2) / 2;
    const double density =
        std::exp(-0.5 * x * static_cast<double>(x)) / std::sqrt(2 * std::numbers::pi);
    const NormalDistribution found = normal_distribution(broadcast(x));
    worst_below = std::fmax(worst_below, std::fabs(lane(found.below) / below - 1));
    worst_density = std::fmax(worst_density, std::fabs(lane(found.density) / density - 1));
  });
  EXPECT_LT(worst_below, 6e-7);
  EXPECT_LT(worst_density, 6e-7);
}

}  // namespace
}  // namespace engine::ops::isa_test

#undef ENGINE_ISA_NAMESPACE
