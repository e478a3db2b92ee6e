// The rule for the rate and the momentum of outer steps.
#include "engine/averaging/policies/outer_rate.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

constexpr OuterOptions kByRule{.lr = std::nullopt, .momentum = std::nullopt, .nesterov = true};
constexpr std::int64_t kLong = 500;

TEST(OuterRate, BeginsAsTheMeanAndGrowsToThePapersValues) {
  const OuterRate first = outer_rate(kByRule, 0, kLong);
  EXPECT_EQ(first.lr, 1);
  EXPECT_EQ(first.momentum, 0);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 2, kLong).momentum, 0.2);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 8, kLong).momentum, 0.5);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 8, kLong).lr, 1 - 0.5 / 3);
  double before = 0;
  for (std::int64_t k = 1; k < 100; ++k) {
    const OuterRate rate = outer_rate(kByRule, k, kLong);
    EXPECT_GE(rate.momentum, before);
    before = rate.momentum;
  }
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 71, kLong).momentum, 71.0 / 79);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 72, kLong).momentum, 0.9);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 100'000, kLong).momentum, 0.9);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 100'000, kLong).lr, 0.7);
}

TEST(OuterRate, ShortPeriodsHaveLessMomentum) {
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 1000, 4).momentum, 0.2);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 1000, 16).momentum, 0.5);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 1000, 64).momentum, 0.8);
  EXPECT_DOUBLE_EQ(outer_rate(kByRule, 1, 64).momentum, 1.0 / 9);
}

TEST(OuterRate, GivenNumbersHoldInEveryStep) {
  const OuterOptions given{.lr = 0.6, .momentum = 0.95};
  for (const std::int64_t k : {0, 1, 1000}) {
    EXPECT_EQ(outer_rate(given, k, 1).lr, 0.6);
    EXPECT_EQ(outer_rate(given, k, 1).momentum, 0.95);
  }
  // One of both: the rate follows the momentum that is used.
  EXPECT_DOUBLE_EQ(outer_rate({.lr = std::nullopt, .momentum = 0.9}, 0, 1).lr, 0.7);
  EXPECT_EQ(outer_rate({.lr = std::nullopt, .momentum = 0}, 9, kLong).lr, 1);
  EXPECT_DOUBLE_EQ(outer_rate({.lr = 0.4, .momentum = std::nullopt}, 8, kLong).momentum, 0.5);
  EXPECT_EQ(outer_rate({.lr = 0.4, .momentum = std::nullopt}, 8, kLong).lr, 0.4);
}

TEST(OuterRate, ThePeriodIsThatOfThePhase) {
  const SyncSchedule schedule({{0, 2}, {10, 8}});
  EXPECT_EQ(period_at(schedule, 2), 2);
  EXPECT_EQ(period_at(schedule, 10), 2);  // the end of the first phase
  EXPECT_EQ(period_at(schedule, 18), 8);
}

}  // namespace
}  // namespace engine
