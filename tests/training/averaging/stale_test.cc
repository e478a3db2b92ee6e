// Whole trainings with averagings that do not wait for late ranks.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

// No rank is ever late.
const Options kPatient = "stale=2 stale-patience=1000000";

// Evaluations wait for all ranks, so those between averagings make means of their own.
TEST(Stale, WithoutLateRanksHasTheBitsOfWaitingForAll) {
  for (const char* options :
       {"sync=params sync-every=3", "sync=params sync-schedule=0:1,4:3 batch-size=13",
        "sync=diloco sync-every=3 optimizer=adamw lr=0.001",
        "sync=diloco batch-size=1 sync-every=2",
        "sync=diloco sync-every=2 sync-warmup=3 outer-lr=0.7 outer-momentum=0.9",
        "sync=post-local sync-warmup=4 sync-every=3 shares=5:1:1 batch-size=13",
        "sync=diloco sync-every=2 eval-every=4s clip-grad=0.5 verify-every=1"}) {
    const auto plain = train(3, with("steps=14", options)),
               stale = train(3, with("steps=14", options, kPatient));
    expect_in_sync(stale);
    EXPECT_TRUE(same_bits(plain[0], stale[0], io::Section::kParameter)) << options;
    EXPECT_EQ(plain[2].losses, stale[2].losses) << options;
    EXPECT_EQ(plain[0].bytes_sent, stale[0].bytes_sent) << options;
    EXPECT_VALUES(stale[0].coverage, "missed 0 averagings skipped 0 steps");
  }
}

// After its first step, holds rank 1 until rank 0 has made three, with an averaging after each.
// Ranks agree on reports and stops in the first step or in the fourth, and not in between.
session_runner::AfterStep hold_rank_1() {
  auto reached = std::make_shared<std::promise<void>>();
  std::shared_future<void> third_step = reached->get_future().share();
  return [reached, third_step](int rank, engine::TrainState& state) {
    const std::int64_t step = state.progress.global_step;
    if (rank == 0 && step == 3) reached->set_value();
    if (rank != 1 || step != 1) return;
    third_step.wait();
    while (state.policy.take_report().averagings < 3) std::this_thread::yield();
  };
}

// Waiting for all, rank 0 would never make the third step.
TEST(Stale, AFastRankDoesNotWait) {
  for (const char* sync : {"sync=params", "sync=diloco"}) {
    const auto ranks = train(
        2, with("steps=8 log-every=0 stale=3 stale-patience=0 optimizer=adamw lr=0.001", sync),
        hold_rank_1());
    expect_in_sync(ranks);
    for (const RankResult& rank : ranks) {
      EXPECT_EQ(rank.end.global_step, 8);
      const auto& counters = rank.whole.counters;
      EXPECT_GE(engine::find_counter(counters, "averaging.missed_averagings", -1), 2) << sync;
      EXPECT_GE(engine::find_counter(counters, "averaging.skipped_steps.1", -1), 1) << sync;
    }
    EXPECT_LT(engine::find_counter(ranks[1].whole.counters, "optimizer.steps", -1), 8);
  }
}

class StaleContinuation : public testing::TestWithParam<Options> {};

TEST_P(StaleContinuation, AStopInTheMiddleOfAPeriodChangesNoBit) {
  for (const int world : {2, 3}) {
    const test_support::TemporaryDirectory whole, parts;
    const Options options =
        with("model=convnet synthetic-shape=8x8x1 save-every=3s", kPatient, GetParam());
    const auto uninterrupted =
        train(world, with(options, "steps=12 save-dir=" + whole.path().string()));
    std::vector<RankResult> last;
    for (const char* steps : {"3", "6", "9", "12"})
      last = train(world, with(options, std::string("steps=") + steps +
                                            " save-dir=" + parts.path().string() + " resume=auto"));
    for (std::size_t r = 0; r < last.size(); ++r)
      EXPECT_EQ(session_runner::difference(uninterrupted[r].whole, last[r].whole), "")
          << world << " ranks, rank " << r;
    EXPECT_EQ(last[0].coverage, uninterrupted[0].coverage);
    EXPECT_EQ(last[0].bytes_sent, uninterrupted[0].bytes_sent);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, StaleContinuation,
                         testing::Values(Options("sync=params sync-every=4 batch-size=13"),
                                         Options("sync=diloco sync-every=4 optimizer=adamw"),
                                         Options("sync=post-local sync-every=2 sync-warmup=5")));

// Every rank's optimizer continues with its own number of updates.
TEST(Stale, ARunWithLateRanksIsResumed) {
  const test_support::TemporaryDirectory folder;
  const Options options = with("log-every=0 stale=3 optimizer=adamw lr=0.001 sync=diloco",
                               "save-every=8 save-dir=" + folder.path().string());
  const auto late = train(2, with(options, "steps=8 stale-patience=0"), hold_rank_1());
  const auto updates = [](const RankResult& rank) {
    return engine::find_counter(rank.whole.counters, "optimizer.steps", -1);
  };
  const auto resumed = train(2, with(options, "steps=12 stale-patience=1000000 resume=auto"));
  for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(updates(resumed[r]), updates(late[r]) + 4);
  EXPECT_LT(updates(resumed[1]), 12);
  // Without the option, and with another number of ranks.
  expect_in_sync(train(2, with(options, "steps=16 stale= stale-patience= resume=auto")));
  expect_in_sync(train(3, with(options, "steps=20 resume=auto")));
}

TEST(Stale, SaysWhatItDoes) {
  const auto ranks = train(2, "steps=6 sync=diloco sync-every=3 stale=1");
  ASSERT_EQ(ranks[0].plan.size(), 4u);
  EXPECT_VALUES(ranks[0].plan[2], "late 10 % 1 averaging behind");
  EXPECT_VALUES(ranks[0].plan[3], "wait evaluations checkpoints");
}

TEST(Stale, WhatNeedsAllRanksInAStepIsRefused) {
  for (const char* options :
       {"sync-island=host", "compress=int8", "average-state=momentum", "average-buffers=true",
        "local-steps=3:1", "sync-bn=true", "on-nonfinite=skip"})
    EXPECT_EQ(
        exact_support::refusal(2, with("sync=diloco stale=1", options)).find("--stale requires "),
        0u)
        << options;
}

}  // namespace
