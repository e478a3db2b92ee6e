// --shares: ranks with unequal shares of each step, fixed or changing, train as one process does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::expect_losses;
using exact_support::kBuffers;
using exact_support::kConv;
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

Options shares(const std::string& text) { return Options("shares=" + text); }

std::map<std::string, std::int64_t> share_counters(const io::Checkpoint& checkpoint) {
  std::map<std::string, std::int64_t> found;
  for (const auto& [name, value] : checkpoint.counters)
    if (name.starts_with("shares.")) found[name] = value;
  return found;
}

struct Training {
  const char* name;
  Options options;
};
void PrintTo(const Training& t, std::ostream* out) { *out << t.name; }  // for the test library

class Shares : public testing::TestWithParam<Training> {};

TEST_P(Shares, AnyWeightsGiveTheTrainingOfOneProcess) {
  const Options options = with(kExact, "batch-size=13", GetParam().options);
  const auto one = train(1, options);
  for (const char* weights : {"3:1", "1:20", "1:5:2", "1:1:1:9"}) {
    SCOPED_TRACE(weights);
    const int world = static_cast<int>(std::ranges::count(std::string(weights), ':')) + 1;
    const auto many = train(world, with(options, shares(weights)));
    EXPECT_LT(distance(one[0], many[0]), 1e-12);
    expect_losses(one[0], many[0], 1e-12);
    expect_in_sync(many);
  }
}

TEST_P(Shares, ChangeWithinAnEpochWithoutAnEffect) {
  const Options options = with(kExact, "batch-size=13", GetParam().options);
  const auto one = train(1, options);
  // 60 samples in steps of 13: five steps an epoch.
  const auto change = measured({{1, {300, 100}}, {3, {100, 900}}, {6, {500, 500}}});
  const auto two = train(2, with(options, shares("auto")), change);
  EXPECT_LT(distance(one[0], two[0]), 1e-12);
  expect_losses(one[0], two[0], 1e-12);
  expect_in_sync(two);
  ASSERT_GE(two[0].shares.size(), 2u) << "else nothing changed";
  EXPECT_GT(two[0].shares[0].samples[0], two[0].shares[0].samples[1]);
  EXPECT_LT(two[0].shares[1].samples[0], two[0].shares[1].samples[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Trainings, Shares,
    testing::Values(Training{"gradients", {}},
                    Training{"batch_statistics",
                             "model=convnet synthetic-shape=8x8x1 sync-bn=true epochs=1"},
                    Training{"micro_batches", "grad-accum=3"},
                    Training{"sharded_optimizer", "shard-optimizer=true"},
                    Training{"parameters_after_each_step",
                             "sync=params sync-every=1 momentum=0 average-state=none"},
                    Training{"sum_of_losses", "reduction=sum lr=0.001"},
                    Training{"workers", "workers=2 prefetch=4"}));

// The shares that measurements lead to are in the checkpoint; before, there are none.
TEST(AutomaticShares, AreSavedAndUsedOnResume) {
  const TemporaryDirectory folder;
  const Options options = "dtype=f64 lr=0.05 momentum=0.9 batch-size=13 shares=auto steps=4";
  const Options saved = with(options, "save-dir=" + folder.path().string());
  const auto first = train(2, saved, measured({{1, {300, 100}}}));
  const auto counters = share_counters(io::load_checkpoint(first[0].saved.back()));
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_NEAR(
      static_cast<double>(counters.at("shares.0")) / static_cast<double>(counters.at("shares.1")),
      3, 0.02);
  const auto resumed = train(2, with(saved, "steps=8 resume=auto"));  // too few to measure
  ASSERT_EQ(resumed[0].shares.size(), 1u) << "those of the checkpoint";
  EXPECT_GT(resumed[0].shares[0].samples[0], 2 * resumed[0].shares[0].samples[1]);
  EXPECT_EQ(share_counters(io::load_checkpoint(resumed[0].saved.back())), counters);
  const auto one = train(1, with(options, "steps=8"));
  EXPECT_LT(distance(one[0], resumed[0]), 1e-12);
  // Ranks of an elastic job may be others than before.
  const auto elastic = train(
      2, with(options, std::string("steps=10 elastic=1:2 resume=") + resumed[0].saved.back()));
  EXPECT_TRUE(elastic[0].shares.empty());
  // Another number of ranks begins with equal shares.
  const auto three = train(3, with(saved, "steps=10 resume=auto"));
  EXPECT_TRUE(share_counters(io::load_checkpoint(three[0].saved.back())).empty());
}

TEST(FixedShares, ResumeBitByBitWithinAnEpoch) {
  const Options options =
      "shares=3:1 batch-size=13 momentum=0.9 model=convnet "
      "synthetic-shape=8x8x1";
  const TemporaryDirectory folder;
  const Options saved = with(options, "save-dir=" + folder.path().string());
  train(2, with(saved, "steps=3"));
  const auto resumed = train(2, with(saved, "steps=8 resume=auto"));
  const auto whole = train(2, with(options, "steps=8"));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(same_bits(whole[rank], resumed[rank], io::Section::kParameter));
    EXPECT_TRUE(same_bits(whole[rank], resumed[rank], kBuffers));
  }
}

TEST(FixedShares, EqualWeightsAreTheBitsOfTheDefault) {
  const Options options = "batch-size=13 epochs=2";
  EXPECT_TRUE(same_bits(train(2, options)[0], train(2, with(options, shares("7:7")))[0],
                        io::Section::kParameter));
  EXPECT_FALSE(same_bits(train(2, options)[0], train(2, with(options, shares("3:1")))[0],
                         io::Section::kParameter))
      << "else shares have no effect";
}

TEST(FixedShares, CanonicalOrderKeepsItsBits) {
  for (const Options& model :
       {Options{}, Options("model=convnet synthetic-shape=8x8x1 sync-bn=true")}) {
    const Options options = with("reduction-order=canonical batch-size=21 clip-grad=1", model);
    const auto one = train(1, options);
    for (const char* weights : {"3:1", "1:30", "1:5:2", "1:1:1:9"}) {
      SCOPED_TRACE(weights);
      const int world = static_cast<int>(std::ranges::count(std::string(weights), ':')) + 1;
      for (const RankResult& rank : train(world, with(options, shares(weights)))) {
        EXPECT_TRUE(same_bits(one[0], rank, io::Section::kParameter));
        EXPECT_TRUE(same_bits(one[0], rank, kBuffers));
      }
    }
  }
}

// Replicas that are averaged are weighted by their samples.
TEST(FixedShares, AverageParametersBySamples) {
  const Options options =
      with(kExact, "batch-size=12 sync=params sync-every=4 shares=3:1 epochs=1");
  const auto two = train(2, options);
  expect_in_sync(two);
  EXPECT_GT(distance(two[0], train(2, with(options, shares("equal")))[0]), 1e-9);
}

TEST(ShareOptions, AreRejectedInOneLineWhereTheyCannotHold) {
  EXPECT_VALUES(refusal(3, "shares=3:1"), "--shares 2 weights 3 ranks 3:1");
  EXPECT_CONTAINS(refusal(2, "shares=3:0"), "a weight from 1 to 10000");
  EXPECT_CONTAINS(refusal(2, "shares=fast"), "expected equal, auto, or");
  EXPECT_CONTAINS(refusal(2, "shares=3:1 shard=file"), "--shares 3:1 requires --shard contiguous");
  EXPECT_CONTAINS(refusal(2, "shares=auto shard=strided"), "requires --shard contiguous");
  EXPECT_CONTAINS(refusal(2, "shares=auto uneven=pad"), "requires --uneven join");
  EXPECT_CONTAINS(refusal(2, "shares=auto reduction-order=canonical"),
                  "requires --reduction-order fast");
  EXPECT_CONTAINS(refusal(2, "shares=3:1 elastic=1:2"), "without --elastic");
}

}  // namespace
