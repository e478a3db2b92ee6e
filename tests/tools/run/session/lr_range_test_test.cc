// What a learning-rate range test makes of its curve.
#include "tools/run/session/lr_range_test.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/base/files/io_error.h"

namespace {

using tools::find_rate;
using tools::parse_rate_range;
using tools::RateFinding;
using tools::RatePoint;

// Flat up to 1e-3, falling fastest at 1e-2, lowest at 1e-1, and exploding behind it.
std::vector<RatePoint> curve(double noise) {
  std::vector<RatePoint> points;
  for (int i = 0; i <= 120; ++i) {
    const double exponent = -5 + i * 0.05;
    const double fall = 1 / (1 + std::exp(-(exponent + 2) * 6)),
                 rise = exponent > -1 ? std::pow(10, 2 * (exponent + 1)) - 1 : 0;
    const double wave = noise * std::sin(i * 2.1);
    points.push_back({std::pow(10, exponent), 2.3 - 1.5 * fall + rise + wave});
  }
  return points;
}

TEST(LrRangeTest, FindsTheSteepestFallAndTheLowestLoss) {
  for (const double noise : {0.0, 0.05}) {
    const RateFinding found = find_rate(curve(noise));
    ASSERT_TRUE(found.steepest && found.lowest);
    EXPECT_NEAR(std::log10(*found.steepest), -2, 0.15) << noise;
    EXPECT_NEAR(std::log10(*found.lowest), -1, 0.4) << noise;
  }
}

TEST(LrRangeTest, ALossThatDoesNotFallGivesNone) {
  std::vector<RatePoint> rising, flat;
  for (int i = 0; i < 50; ++i) {
    const double rate = std::pow(10, -5 + i * 0.1);
    rising.push_back({rate, 2 + 0.1 * i});
    flat.push_back({rate, 2 + 0.001 * (i % 3)});
  }
  EXPECT_FALSE(find_rate(rising).steepest.has_value());
  EXPECT_FALSE(find_rate(flat).steepest.has_value());
  EXPECT_FALSE(find_rate({}).steepest.has_value());
  EXPECT_FALSE(find_rate({{0.1, 2}}).steepest.has_value());
}

TEST(LrRangeTest, TheRangeIsParsed) {
  EXPECT_EQ(parse_rate_range("", 0).steps, 100);
  EXPECT_EQ(parse_rate_range("1e-4:2", 30).steps, 30);
  EXPECT_EQ(parse_rate_range("1e-4:2", 30).lowest, 1e-4);
  EXPECT_EQ(parse_rate_range("1e-4:2", 30).highest, 2);
  for (const char* text : {"1", "2:1", "0:1", "a:b", "1:2:3", ":", "1e-4:1e9"})
    EXPECT_THROW(static_cast<void>(parse_rate_range(text, 0)), io::ConfigError) << text;
  EXPECT_THROW(static_cast<void>(parse_rate_range("", 5)), io::ConfigError);
}

TEST(LrRangeTest, TheScheduleGoesThroughTheRange) {
  const engine::LearningRate rate{.base = 1e-4,
                                  .schedule = engine::LearningRate::Schedule::kRange,
                                  .milestones = {},
                                  .total_steps = 11,
                                  .highest = 1};
  EXPECT_DOUBLE_EQ(rate.at(0), 1e-4);
  EXPECT_NEAR(rate.at(5), 1e-2, 1e-14);
  EXPECT_NEAR(rate.at(10), 1, 1e-12);
  EXPECT_NEAR(rate.at(20), 1, 1e-12);
}

// Near zero a loss is soon four times another.
TEST(LrRangeTest, GoesOnWhereTheLossIsStillBelowTheFirst) {
  const std::atomic<int> signal{0};
  std::atomic<int> stop{0};
  tools::LrRangeTest test(signal, stop, nullptr);
  for (const double loss : {2.0, 1.0, 0.5, 0.1, 0.4, 0.8, 1.9})
    test.on_report({.progress = {}, .loss = loss, .lr = 0.1});
  EXPECT_EQ(stop.load(), 0);
  test.on_report({.progress = {}, .loss = 2.1, .lr = 0.1});
  EXPECT_EQ(stop.load(), tools::LrRangeTest::kDiverged);
}

TEST(LrRangeTest, StopsWhereTheLossExplodes) {
  const std::atomic<int> signal{0};
  std::atomic<int> stop{0};
  tools::LrRangeTest test(signal, stop, nullptr);
  const auto report = [&](double loss, double lr) {
    test.on_report({.progress = {}, .loss = loss, .lr = lr});
  };
  for (int i = 0; i < 5; ++i) report(2 - 0.1 * i, 0.01 * (i + 1));
  EXPECT_EQ(stop.load(), 0);
  report(4, 0.06);
  EXPECT_EQ(stop.load(), 0);
  report(7, 0.07);
  EXPECT_EQ(stop.load(), tools::LrRangeTest::kDiverged);
  stop = 0;
  report(NAN, 0.08);
  EXPECT_EQ(stop.load(), tools::LrRangeTest::kDiverged);
  EXPECT_EQ(test.points().size(), 7u);  // without the NaN
}

}  // namespace
