// Schedules as functions of the step; numbers computed by hand or with torch.optim.lr_scheduler.
#include "engine/optim/learning_rate.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace engine
