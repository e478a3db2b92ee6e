// A run ends when the epochs asked for are done, whatever batch, data or world it goes on with.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/train/epoch_steps.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::Options;
using session_runner::RankResult;
using session_runner::train;
using session_runner::with;

TEST(EpochSteps, WithTheSameBatchTheyAreMultiples) {
  const engine::EpochSteps steps{
      {.global_step = 17, .epoch = 3, .step_in_epoch = 2, .samples_seen = 0}, 5};
  for (const int epoch : {0, 1, 3, 4, 30}) EXPECT_EQ(steps.step_of_epoch(epoch), 5 * epoch);
}

TEST(EpochSteps, WithAnotherBatchTheyGoOnFromTheStart) {
  const engine::EpochSteps steps{
      {.global_step = 20, .epoch = 2, .step_in_epoch = 0, .samples_seen = 0}, 5};
  EXPECT_EQ(steps.step_of_epoch(2), 20);
  EXPECT_EQ(steps.step_of_epoch(4), 30);
  EXPECT_EQ(steps.step_of_epoch(0), 10);
}

// 60 samples; the first epoch has five steps of 12.
class GoesOn : public testing::Test {
 protected:
  Options options(const Options& more) const {
    return with("save-dir=" + folder_.path().string() + " resume=auto epochs=1", more);
  }
  RankResult one_epoch(const Options& more = {}) const { return train(1, options(more))[0]; }
  RankResult go_on(const Options& more, int world = 1) const {
    return train(world, options(more))[0];
  }

  const test_support::TemporaryDirectory folder_;
};

TEST_F(GoesOn, WithALargerBatch) {
  EXPECT_EQ(one_epoch().end.global_step, 5);
  const RankResult result = go_on("batch-size=20 epochs=3");
  EXPECT_EQ(result.end.global_step, 5 + 2 * 3);
  EXPECT_EQ(result.end.epoch, 3);
  EXPECT_EQ(result.end.step_in_epoch, 0);
  EXPECT_EQ(result.end.samples_seen, 3 * 60);
}

TEST_F(GoesOn, WithASmallerBatch) {
  one_epoch();
  const RankResult result = go_on("batch-size=6 epochs=2");
  EXPECT_EQ(result.end.global_step, 5 + 10);
  EXPECT_EQ(result.end.samples_seen, 2 * 60);
}

TEST_F(GoesOn, WithFewerSamples) {
  one_epoch();
  const RankResult result = go_on("limit=24 epochs=4");
  EXPECT_EQ(result.end.global_step, 5 + 3 * 2);
  EXPECT_EQ(result.end.epoch, 4);
}

TEST_F(GoesOn, WithAnotherWorldWhereIncompleteStepsAreDropped) {
  const Options uneven = "batch-size-per-device=8 batch-size= uneven=drop epochs=1";
  EXPECT_EQ(one_epoch(uneven).end.global_step, 7);
  const RankResult result = go_on(with(uneven, "epochs=3"), 2);
  EXPECT_EQ(result.end.global_step, 7 + 2 * 3);
  EXPECT_EQ(result.end.epoch, 3);
}

TEST_F(GoesOn, StepsAreGlobalOnesInAll) {
  one_epoch();
  const RankResult result = go_on("epochs= steps=9 batch-size=20");
  EXPECT_EQ(result.end.global_step, 9);
  EXPECT_EQ(result.end.epoch, 2);
  EXPECT_EQ(result.end.step_in_epoch, 1);
}

TEST_F(GoesOn, MilestonesAreEpochs) {
  const Options schedule = "lr=0.08 lr-schedule=step lr-milestones=1,2 lr-gamma=0.5";
  EXPECT_EQ(one_epoch(schedule).reports.back().lr, 0.08);
  const RankResult result = go_on(with(schedule, "batch-size=20 epochs=3"));
  ASSERT_EQ(result.reports.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_DOUBLE_EQ(result.reports[i].lr, i < 3 ? 0.04 : 0.02) << "step " << i;
}

TEST_F(GoesOn, TheCosineFallsWithTheEpochs) {
  const Options schedule = "lr=0.08 lr-schedule=cosine";
  one_epoch(with(schedule, "epochs=2 save-every=1e keep-last=0"));
  // From the end of the first of two epochs: half of the way, whatever the batch.
  const std::string middle = folder_ / "step-00000005.ckpt";
  for (const char* batch : {"12", "20", "6"}) {
    const RankResult result =
        go_on(with(schedule, std::string("epochs=2 resume=") + middle + " batch-size=" + batch));
    EXPECT_DOUBLE_EQ(result.reports.front().lr, 0.04) << batch;
    EXPECT_LT(result.reports.back().lr, 0.02) << batch;
    EXPECT_EQ(result.end.epoch, 2);
  }
}

TEST_F(GoesOn, NothingIsLeftOnceTheEpochsAreDone) {
  one_epoch();
  const RankResult result = go_on("batch-size=6 epochs=1");
  EXPECT_EQ(result.end.global_step, 5);
  EXPECT_TRUE(result.reports.empty());
}

TEST_F(GoesOn, InTheMiddleOfAnEpochOnlyWithTheSameData) {
  one_epoch("epochs= steps=2");
  try {
    go_on("synthetic-size=59");  // as many steps an epoch
    FAIL() << "went on with other data";
  } catch (const engine::ModelError& error) {
    EXPECT_CONTAINS(error.what(), "data set size 60, this run has 59");
  }
}

}  // namespace
