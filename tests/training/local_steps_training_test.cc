// --local-steps: a slow rank takes fewer steps between averagings, with weights and by speed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "io/checkpoint/checkpoint.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::expect_losses;
using exact_support::kExact;
using exact_support::measured;
using exact_support::refusal;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

const Options kLocal = "batch-size=12 sync=params sync-every=4 local-steps=3:1";

std::int64_t updates(const RankResult& rank) {
  return engine::find_counter(rank.whole.counters, "optimizer.steps", -1);
}

// 3:1 is 9 + 3 of 12 samples on average: rank 1 takes its usual 6 in every second step, of the 5 of
// an epoch in 3.
TEST(LocalSteps, ASlowRankMakesFewerUpdates) {
  const auto two = train(2, with(kLocal, "steps=10"));
  EXPECT_EQ(updates(two[0]), 10);
  EXPECT_EQ(updates(two[1]), 6);
  expect_in_sync(two);
  ASSERT_EQ(two[0].shares.size(), 1u);
  EXPECT_EQ(two[0].shares[0].samples, (std::vector<std::int64_t>{9, 3}));
  EXPECT_EQ(two[0].shares[0].local_steps, (std::vector<double>{1, 0.5}));
  const auto three = train(3, with(kLocal, "local-steps=2:1:3 steps=8"));
  EXPECT_EQ(updates(three[1]), 5);
  expect_in_sync(three);
}

// Averaged after each step, each rank has the weight of its samples, also of none.
TEST(LocalSteps, AveragedInEachStepAreTheTrainingOfOneProcess) {
  const Options options = with(
      kExact, "batch-size=13 sync=params sync-every=1 momentum=0 average-state=none", "epochs=2");
  const auto one = train(1, options);
  for (const char* weights : {"3:1", "1:2", "1:5:2", "1:1:1:9"}) {
    SCOPED_TRACE(weights);
    const int world = weights[3] == '\0' ? 2 : weights[5] == '\0' ? 3 : 4;
    const auto many = train(world, with(options, std::string("local-steps=") + weights));
    EXPECT_LT(distance(one[0], many[0]), 1e-12);
    expect_losses(one[0], many[0], 1e-12);
    expect_in_sync(many);
  }
}

// The optimizer of each rank continues with its own number of updates.
TEST(LocalSteps, ResumeBitByBit) {
  for (const char* sync :
       {"sync=params optimizer=adamw", "sync=diloco", "sync=slowmo momentum=0.9",
        "sync=post-local sync-warmup=3 optimizer=adamw", "sync=params average-state=all"}) {
    SCOPED_TRACE(sync);
    const Options options = with(kLocal, sync, "model=convnet synthetic-shape=8x8x1 save-every=6");
    const TemporaryDirectory first, whole_folder;
    const Options saved = with(options, "save-dir=" + first.path().string());
    train(2, with(saved, "steps=6"));
    const auto resumed = train(2, with(saved, "steps=12 resume=auto"));
    const auto whole = train(2, with(options, "steps=12 save-dir=" + whole_folder.path().string()));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(same_bits(whole[rank], resumed[rank], io::Section::kParameter));
      EXPECT_EQ(updates(resumed[rank]), updates(whole[rank])) << "rank " << rank;
    }
    EXPECT_LT(updates(whole[1]), 12);
    EXPECT_EQ(io::load_checkpoint(resumed[0].saved.back()).counters,
              io::load_checkpoint(whole[0].saved.back()).counters);
  }
}

// While gradients are averaged in every step, each step is divided by speed as with --shares.
TEST(LocalSteps, BeginAfterTheWarmUp) {
  const Options options = "batch-size=12 sync=post-local sync-every=4 sync-warmup=6";
  const auto local = train(2, with(options, "local-steps=3:1 steps=6")),
             shares = train(2, with(options, "shares=3:1 steps=6"));
  EXPECT_TRUE(same_bits(local[0], shares[0], io::Section::kParameter));
  EXPECT_EQ(updates(local[1]), 6);
  const auto longer = train(2, with(options, "local-steps=3:1 steps=14"));
  EXPECT_EQ(updates(longer[1]), 10);
  ASSERT_EQ(longer[0].shares.size(), 2u);
  EXPECT_TRUE(longer[0].shares[0].local_steps.empty());
  EXPECT_EQ(longer[0].shares[1].local_steps, (std::vector<double>{1, 0.5}));
}

TEST(LocalSteps, FollowTheMeasuredSpeeds) {
  const TemporaryDirectory folder;
  const Options options = with(kLocal, "local-steps=auto save-dir=" + folder.path().string());
  const auto first = train(2, with(options, "steps=8"), measured({{2, {300, 100}}}));
  expect_in_sync(first);
  EXPECT_EQ(updates(first[0]), 8);
  EXPECT_EQ(updates(first[1]), 6) << "the first three and every second one";
  ASSERT_EQ(first[0].shares.size(), 1u);
  EXPECT_NEAR(first[0].shares[0].local_steps.at(1), 0.5, 0.01);
  const auto resumed = train(2, with(options, "steps=16 resume=auto"));  // too few to measure
  EXPECT_EQ(updates(resumed[1]), 6 + 5);
  const auto three = train(3, with(options, "steps=20 resume=auto"));
  EXPECT_TRUE(three[0].shares.empty()) << "another number of ranks begins with equal steps";
  expect_in_sync(three);
  expect_in_sync(
      train(2, with(kLocal, "local-steps=auto steps=6 elastic=1:2"), measured({{2, {300, 100}}})));
}

TEST(LocalSteps, EqualWeightsAreTheBitsOfTheDefault) {
  const Options options = "batch-size=13 sync=params sync-every=4 steps=9";
  EXPECT_TRUE(same_bits(train(2, options)[0], train(2, with(options, "local-steps=5:5"))[0],
                        io::Section::kParameter));
}

TEST(LocalSteps, AreInThePlan) {
  const auto two = train(2, with(kLocal, "steps=2"));
  std::string plan;
  for (const std::string& line : two[0].plan) plan += line + "\n";
  EXPECT_CONTAINS(plan, "local steps in proportion 3:1");
}

TEST(LocalSteps, AreRejectedInOneLineWhereTheyCannotHold) {
  EXPECT_VALUES(refusal(3, kLocal), "--local-steps 2 weights 3 ranks");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "shares=3:1")), "requires --shares equal");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "sync-island=host")), "requires --sync-island rank");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "shard=strided")), "requires --shard contiguous");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "uneven=pad")), "requires --uneven join");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "on-nonfinite=skip")), "--on-nonfinite than skip");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "elastic=1:2")), "--local-steps auto is possible");
  EXPECT_CONTAINS(refusal(2, with(kLocal, "model=convnet synthetic-shape=8x8x1 sync-bn=true")),
                  "no --sync-bn");
  EXPECT_CONTAINS(refusal(2, "local-steps=auto"), "--sync");
}

}  // namespace
