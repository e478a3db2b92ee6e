// Plans told before a run.
#include "engine/averaging/policies/averaging_plan.h"
#include "tests/support/expect_contains.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

AveragingPlan plan_of(std::int64_t epochs, SyncSchedule schedule) {
  AveragingPlan plan;
  plan.steps.of_epoch = 196;
  plan.steps.total = epochs * 196;
  plan.schedule = std::move(schedule);
  plan.bytes_each = 1000;
  plan.ranks = 4;
  return plan;
}

TEST(AveragingPlan, CountsByClockAndAtEnds) {
  const AveragingPlan plan = plan_of(2, SyncSchedule::constant(8, 0));
  const PlannedAveragings planned = count_averagings(plan);
  EXPECT_EQ(planned.by_clock, 49);
  EXPECT_EQ(planned.at_ends, 1);  // step 196 is none of the clock's, 392 is
  EXPECT_LINES(describe(plan), "8 steps 49 averagings 1 more 1000 bytes");
}

TEST(AveragingPlan, CountsCheckpointsThatTheClockAndEpochsDoNotCover) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(8, 0));
  plan.steps.save_every = 20;  // of 20, 40, ..., 380 each second one is the clock's
  EXPECT_EQ(count_averagings(plan).at_saves, 10);
  EXPECT_VALUES(describe(plan)[0], "8 steps 49 averagings 1 10 1000 bytes");
  plan.steps.save_every = 49;  // 196 is the end of an epoch and 392 that of the run
  EXPECT_EQ(count_averagings(plan).at_saves, 6);
  plan.steps.first = 294;
  EXPECT_EQ(count_averagings(plan).at_saves, 1);  // 343
  plan.in_pairs = true;
  plan.steps.save_every = 8;                       // all ranks average as well
  EXPECT_EQ(count_averagings(plan).at_saves, 12);  // 296 ... 384
}

TEST(AveragingPlan, CountsWhatIsLeftOfAResumedRunAndAnEpochCutShort) {
  AveragingPlan plan = plan_of(1, SyncSchedule::constant(10, 0));
  plan.steps.first = 95;
  plan.steps.total = 199;  // the second epoch has three steps
  const PlannedAveragings planned = count_averagings(plan);
  EXPECT_EQ(planned.by_clock, 10);  // 100 ... 190
  EXPECT_EQ(planned.at_ends, 2);    // 196 and 199
}

TEST(AveragingPlan, CountsEpochsFromWhereARunWithAnotherBatchGoesOn) {
  AveragingPlan plan = plan_of(1, SyncSchedule::constant(1000, 0));
  plan.steps.first = 50;
  plan.steps.first_of_epochs = -146;  // one epoch is done, in 50 steps
  plan.steps.total = 50 + 2 * 196;
  EXPECT_EQ(count_averagings(plan).at_ends, 2);  // 246 and 442
}

TEST(AveragingPlan, TellsWhenAPeriodIsLongerThanAnEpochOrTheRun) {
  const auto one = describe(plan_of(1, SyncSchedule::constant(500, 0)));
  ASSERT_EQ(one.size(), 2u);
  EXPECT_VALUES(one[1], "500 196 steps 196 epoch");
  const auto four = describe(plan_of(4, SyncSchedule::constant(500, 0)));
  ASSERT_EQ(four.size(), 2u);
  EXPECT_VALUES(four[1], "500 196 steps epoch");
}

TEST(AveragingPlan, TellsOfPhasesAndWarmupsThatDoNotFit) {
  const auto late = describe(plan_of(1, SyncSchedule({{0, 4}, {1000, 8}})));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_VALUES(late[1], "196 steps: phase 1000");
  AveragingPlan warm = plan_of(1, SyncSchedule({{300, 4}}));
  warm.warmup = 300;
  const auto never = describe(warm);
  ASSERT_EQ(never.size(), 2u);
  EXPECT_VALUES(never[1], "300 steps gradients 196: parameters");
}

TEST(AveragingPlan, TellsWhatIsCompressedAndWhenThatSavesNothing) {
  AveragingPlan plan = plan_of(1, SyncSchedule::constant(4, 0));
  plan.compression = "int8";
  plan.bytes_uncompressed = 4000;
  plan.bytes_compressed = plan.bytes_each = plan.bytes_received = 1008;
  plan.ranks = 2;
  const auto all_coded = describe(plan);
  ASSERT_EQ(all_coded.size(), 2u);
  EXPECT_TRUE(all_coded[1].ends_with("int8, 1008 of 4000 bytes")) << all_coded[1];
  plan.bytes_each += 500;
  plan.islands = 2;
  plan.sparse_beside_momentum = true;
  plan.ranks = 8;
  plan.bytes_received = 7 * 1008;
  const std::vector<std::string> lines = describe(plan);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_VALUES(lines[1], "int8, 1008 4000 bytes; optimizer uncompressed; gradients uncompressed");
  EXPECT_VALUES(lines[2], "int8 8 ranks: 7056 bytes, --compress");
  EXPECT_VALUES(lines[3], "sparse momentum 0");
}

TEST(AveragingPlan, TellsTheOuterStepsOfTheRuleAndStatesThatAreAveragedLess) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(16, 0));  // 24 averagings in 392 steps
  plan.outer = OuterOptions{.lr = std::nullopt, .momentum = std::nullopt, .nesterov = true};
  plan.states = {{"exp_avg", 3, 500}, {"exp_avg_sq", 7, 400}};
  auto lines = describe(plan);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "outer lr 1 to 0.833, momentum 0 to 0.5, in outer steps 1 to 24");
  EXPECT_VALUES(lines[2], "exp_avg 1 3 averagings 8 times 500 bytes");
  EXPECT_VALUES(lines[3], "exp_avg_sq 1 7 averagings 3 times 400 bytes");
  plan.steps.first = 200;  // 12 averagings are done, 8 of them with an outer step
  plan.steps.outer_done = 8;
  lines = describe(plan);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_VALUES(lines[1], "0.833 0.5 9 20");
  EXPECT_VALUES(lines[2], "exp_avg 1 3 averagings 4 times 500 bytes");
  EXPECT_VALUES(lines[3], "exp_avg_sq 1 7 averagings 2 times 400 bytes");
  plan.outer = OuterOptions{.lr = 0.7, .momentum = 0.9, .nesterov = true};
  EXPECT_EQ(describe(plan).size(), 3u);
}

TEST(AveragingPlan, SaysWhichStateIsNeverAveraged) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(16, 0));  // 24 averagings in 392 steps
  plan.states = {{"exp_avg", 24, 500}, {"exp_avg_sq", 25, 400}};
  const auto lines = describe(plan);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_VALUES(lines[1], "exp_avg 1 24 averagings 1 time, 500 bytes");
  EXPECT_VALUES(lines[2], "exp_avg_sq 1 25 averagings 0 times --average-state 24 times");
}

TEST(AveragingPlan, TellsTheFragmentsOfStreaming) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(16, 0));
  plan.streaming = StreamingPlan{.fragments = 4, .largest_bytes = 300, .overlap = 2, .mixing = 0.5};
  plan.outer = OuterOptions{.lr = std::nullopt, .momentum = std::nullopt, .nesterov = true};
  auto lines = describe(plan);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_VALUES(lines[1], "4 fragments 300 bytes, 2 steps later, weight 0.5");
  // The clocks of the third and the fourth one come to a 25th time in the 392 steps.
  EXPECT_VALUES(lines[0], "98 averagings fragment");
  EXPECT_VALUES(lines[2], "1 0.833 0 0.5 1 25");
  plan.streaming->overlap = 0;
  plan.steps.outer_done = 32;  // of four fragments
  lines = describe(plan);
  EXPECT_VALUES(lines[1], "4 fragments 300 bytes, at once, weight 0.5");
  EXPECT_VALUES(lines[2], "0.833 0.5 9 33");
  // A period longer than the run.
  plan.steps.outer_done = 0;
  plan.schedule = SyncSchedule::constant(450, 0);
  lines = describe(plan);
  EXPECT_VALUES(lines[0], "3 averagings fragment");
  EXPECT_EQ(lines.size(), 3u);
}

// Also at ends of epochs to which the clock of the first fragment comes.
TEST(AveragingPlan, CountsTheMeansOfAllFragmentsAtEndsOfEpochs) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(49, 0));  // 4 periods in each epoch
  const auto at_ends = [&](const StreamingPlan& streaming) {
    plan.streaming = streaming;
    return count_averagings(plan).at_ends;
  };
  EXPECT_EQ(count_averagings(plan).at_ends, 0);
  EXPECT_EQ(at_ends({.fragments = 4, .largest_bytes = 300, .overlap = 0, .mixing = 1}), 2);
  EXPECT_EQ(at_ends({.fragments = 1, .largest_bytes = 300, .overlap = 2, .mixing = 1}), 2);
  EXPECT_EQ(at_ends({.fragments = 1, .largest_bytes = 300, .overlap = 0, .mixing = 0.5}), 2);
  // As diloco.
  EXPECT_EQ(at_ends({.fragments = 1, .largest_bytes = 300, .overlap = 0, .mixing = 1}), 0);
}

TEST(AveragingPlan, TellsWhoWaitsForWhomInPairs) {
  AveragingPlan plan = plan_of(2, SyncSchedule::constant(8, 0));  // due at the end of the run
  plan.in_pairs = true;
  EXPECT_LINES(describe(plan), "pairs 8 steps: 49 averagings 2 all ranks 1000 bytes",
               "125 bytes per step partner");
  plan.bytes_at_ends = 3000;
  EXPECT_VALUES(describe(plan)[0], "1000 bytes pairs, 3000 all ranks, outer");
  plan.ranks = 5;
  EXPECT_VALUES(describe(plan)[1], "100 bytes per step partner, one of the 5 ranks");
}

TEST(AveragingPlan, TellsOfIslandsThatChangeNothing) {
  AveragingPlan plan = plan_of(1, SyncSchedule::constant(4, 0));
  for (const int islands : {1, 4}) {
    plan.islands = islands;
    ASSERT_EQ(describe(plan).size(), 2u) << islands;
    EXPECT_VALUES(describe(plan)[1], islands == 1 ? "one island" : "one rank --sync-island");
  }
  plan.islands = 2;
  EXPECT_EQ(describe(plan).size(), 1u);
  EXPECT_EQ(describe(plan)[0].find("gradients within 2 hosts every step, parameters every 4 steps"),
            0u)
      << describe(plan)[0];
}

}  // namespace
}  // namespace engine
