// What a run's reports say: the accuracy of the epoch so far, one line at least.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::Options;
using session_runner::train;
using session_runner::with;

// The model stands still and each epoch has the same five steps of 12 samples.
const Options kStill = "lr=1e-30 momentum=0 shuffle=false epochs=3";

std::vector<double> accuracies(const session_runner::RankResult& result) {
  std::vector<double> all;
  for (const engine::StepReport& report : result.reports)
    all.push_back(report.train_accuracy.value());
  return all;
}

TEST(Reports, TheAccuracyIsThatOfTheEpochSoFar) {
  for (const int world : {1, 2}) {
    const std::vector<double> all = accuracies(train(world, kStill)[0]);
    ASSERT_EQ(all.size(), 15u);
    EXPECT_GT(std::set<double>(all.begin(), all.end()).size(), 2u) << "it changes within an epoch";
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(all[i], all[i + 5]) << "step " << i + 1;
    EXPECT_NEAR(all[0] * 12, std::round(all[0] * 12), 1e-9);
  }
}

TEST(Reports, AfterAResumptionTheAccuracyIsOfTheStepsSince) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      with(kStill, "save-dir=" + folder.path().string() + " resume=auto epochs=");
  const std::vector<double> whole = accuracies(train(1, kStill)[0]);
  train(1, with(options, "steps=3"));
  const std::vector<double> rest = accuracies(train(1, with(options, "steps=7"))[0]);
  ASSERT_EQ(rest.size(), 4u);
  // Right predictions of steps 4 and 5, then again of steps 1 and 2.
  EXPECT_NEAR(rest[0] * 12, whole[3] * 48 - whole[2] * 36, 1e-9);
  EXPECT_NEAR(rest[1] * 24, whole[4] * 60 - whole[2] * 36, 1e-9);
  EXPECT_EQ(rest[2], whole[0]);
  EXPECT_EQ(rest[3], whole[1]);
}

TEST(Reports, AShortRunReportsItsLastStep) {
  for (const int world : {1, 2}) {
    const auto reports = train(world, "steps=3 log-every=100")[0].reports;
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].progress.global_step, 3);
    EXPECT_GT(reports[0].loss, 0);
  }
  const auto both = train(1, "steps=5 log-every=3")[0].reports;
  ASSERT_EQ(both.size(), 1u) << "it has a report of its own";
  EXPECT_EQ(both[0].progress.global_step, 3);
  EXPECT_TRUE(train(1, "steps=3 log-every=0")[0].reports.empty());
}

std::vector<std::int64_t> steps_of(const session_runner::RankResult& result) {
  std::vector<std::int64_t> steps;
  for (const engine::StepReport& report : result.reports)
    steps.push_back(report.progress.global_step);
  return steps;
}

// An epoch has five steps.
TEST(Reports, StepsAreCountedOverTheRun) {
  for (const int world : {1, 2})
    EXPECT_EQ(steps_of(train(world, "epochs=4 log-every=8")[0]),
              (std::vector<std::int64_t>{8, 16}));
}

TEST(Reports, ByDefaultThereAreEnoughForACurve) {
  const std::vector<std::int64_t> all = steps_of(train(2, "epochs=41 log-every=auto")[0]);
  ASSERT_EQ(all.size(), 103u);
  EXPECT_EQ(all[0], 2);
  EXPECT_EQ(all[1], 4);
  EXPECT_EQ(all.back(), 205) << "the last step";
  EXPECT_EQ(steps_of(train(1, "steps=3 log-every=auto")[0]), (std::vector<std::int64_t>{1, 2, 3}));
}

}  // namespace
