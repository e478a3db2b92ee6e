// Schedules as functions of the step; numbers computed by hand or with torch.optim.lr_scheduler.
#include "engine/optim/learning_rate.h"

#include <gtest/gtest.h>

#include <map>

namespace engine {
namespace {

TEST(LearningRate, ConstantStaysAndWarmupClimbsToIt) {
  const LearningRate rate{.base = 0.4,
                          .schedule = LearningRate::Schedule::kConstant,
                          .warmup_steps = 4,
                          .milestones = {}};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.4);
}

TEST(LearningRate, StepFallsAtItsMilestones) {
  const LearningRate rate{
      .base = 1, .schedule = LearningRate::Schedule::kStep, .milestones = {10, 20}, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(rate.at(9), 1);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(25), 0.25);
}

TEST(LearningRate, CosineEndsAtItsMinimum) {
  // torch.optim.lr_scheduler.CosineAnnealingLR(T_max=10, eta_min=0.1) from 1.1
  const LearningRate rate{.base = 1.1,
                          .schedule = LearningRate::Schedule::kCosine,
                          .milestones = {},
                          .total_steps = 10,
                          .minimum = 0.1};
  EXPECT_DOUBLE_EQ(rate.at(0), 1.1);
  EXPECT_NEAR(rate.at(3), 0.8938926261462366, 1e-12);
  EXPECT_NEAR(rate.at(5), 0.6, 1e-12);
  EXPECT_NEAR(rate.at(10), 0.1, 1e-12);
  EXPECT_NEAR(rate.at(11), 0.1, 1e-12);
}

TEST(LearningRate, CosineCountsFromItsFirstStep) {
  LearningRate rate{.base = 1.1,
                    .schedule = LearningRate::Schedule::kCosine,
                    .milestones = {},
                    .total_steps = 10,
                    .minimum = 0.1};
  for (const int first : {-7, 5}) {
    LearningRate moved = rate;
    moved.first_step = first;
    moved.total_steps = 10 + first;
    for (const int step : {7, 8, 10, 11}) EXPECT_EQ(moved.at(step + first), rate.at(step)) << step;
  }
  rate.first_step = 5;
  EXPECT_EQ(rate.at(2), 1.1) << "before it, the base";
}

// Of all 1,000 steps, and some of them: from the library transformers 4 (get_linear_schedule_with_
// warmup, get_wsd_schedule) with a rate of 0.003 and 100 steps of warm-up.
struct Expected {
  LearningRate rate;
  std::map<std::int64_t, double> at;
  double sum, weighted_squares;
};

void expect_rates(const Expected& expected) {
  double sum = 0, weighted_squares = 0;
  for (std::int64_t step = 0; step < expected.rate.total_steps; ++step) {
    const double rate = expected.rate.at(step);
    sum += rate;
    weighted_squares += rate * rate * static_cast<double>(step + 1);
  }
  EXPECT_NEAR(sum, expected.sum, 1e-12);
  EXPECT_NEAR(weighted_squares, expected.weighted_squares, 1e-12);
  for (const auto& [step, rate] : expected.at)
    EXPECT_NEAR(expected.rate.at(step), rate, 1e-15) << step;
}

LearningRate thousand_steps(LearningRate::Schedule schedule) {
  return {.base = 0.003,
          .schedule = schedule,
          .warmup_steps = 100,
          .milestones = {},
          .total_steps = 1000};
}

TEST(LearningRate, LinearIsThatOfTransformers) {
  expect_rates({thousand_steps(LearningRate::Schedule::kLinear),
                {{0, 0},
                 {57, 0.00171},
                 {99, 0.00297},
                 {100, 0.003},
                 {550, 0.0015},
                 {820, 0.0006000000000000001},
                 {999, 3.3333333333333333e-06},
                 {1000, 0}},
                1.5,
                0.9030016833333334});
}

TEST(LearningRate, StableThenDecayIsThatOfTransformers) {
  using Decay = LearningRate::Decay;
  LearningRate rate = thousand_steps(LearningRate::Schedule::kStableDecay);
  rate.minimum = 0.0003;
  rate.decay_fraction = 0.2;  // of 900 steps
  const std::map<std::int64_t, double> before{{0, 0.0003},  {57, 0.001839}, {99, 0.002973},
                                              {100, 0.003}, {820, 0.003},   {1000, 0.0003}};
  const auto with = [&](std::map<std::int64_t, double> more) {
    more.insert(before.begin(), before.end());
    return more;
  };
  rate.decay = Decay::kLinear;
  expect_rates({rate, with({{821, 0.002985}, {999, 0.000315}}), 2.622, 3.5336461689000003});
  rate.decay = Decay::kCosine;
  expect_rates({rate, with({{821, 0.0029997943884611284}, {999, 0.00030020561153887185}}), 2.622,
                3.5782568825600864});
  rate.decay = Decay::kSquareRoot;
  expect_rates({rate, with({{821, 0.002798753882025019}, {999, 0.0003075104457027135}}),
                2.5410412112959984, 3.299081432266615});
}

TEST(LearningRate, AFractionOfOneDecaysAfterTheWarmup) {
  LearningRate rate = thousand_steps(LearningRate::Schedule::kStableDecay);
  rate.decay_fraction = 1;
  rate.decay = LearningRate::Decay::kLinear;
  for (const std::int64_t step : {0, 99, 100, 101, 999, 1000})
    EXPECT_DOUBLE_EQ(rate.at(step), thousand_steps(LearningRate::Schedule::kLinear).at(step));
}

}  // namespace
}  // namespace engine
