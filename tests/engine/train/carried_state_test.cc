// Trainings whose ranks change on the way: what is left goes on from memory, and ends as if nothing
// had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/engine/train/changing_ranks.h"

namespace {

using namespace session_runner;
using changing_ranks::Job;

class CanonicalOrderOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(CanonicalOrderOfChangingRanks, EndsWithTheSameBits) {
  const Options options = with(
      {{"reduction-order", "canonical"}, {"steps", "12"}, {"batch-size", "21"}, {"lr", "0.05"}},
      GetParam());
  const RankResult whole = train(1, options)[0];
  Job job(options, 5);
  job.join(5);
  job.until_death(0, 2);  // the first
  job.until_death(3, 4);  // the last
  job.join(2);
  EXPECT_TRUE(job.until_pause(6));
  job.join(1);
  job.until_death(1, 9);
  for (const RankResult& rank : job.to_the_end()) {
    EXPECT_EQ(rank.end.global_step, 12);
    EXPECT_EQ(rank.end.samples_seen, whole.end.samples_seen);
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kBuffer));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CanonicalOrderOfChangingRanks,
    testing::Values(
        Options{}, Options{{"optimizer", "adamw"}, {"lr", "0.001"}, {"ema", "0.9"}},
        Options{{"optimizer", "muon"}, {"clip-grad", "0.5"}},
        Options{{"model", "convnet"}, {"synthetic-shape", "8x8x1"}},
        Options{{"model", "resnet20-cifar"}, {"synthetic-shape", "8x8x3"}, {"sync-bn", "true"}},
        Options{{"model", "resnet20-cifar"}, {"synthetic-shape", "8x8x3"}}));

// Deaths and arrivals at random: 20 trainings, or as many as ENGINE_ELASTIC_HISTORIES says.
TEST(ChangingRanks, EndWithTheSameBitsWhateverHappens) {
  const char* given = std::getenv("ENGINE_ELASTIC_HISTORIES");
  const int histories = given != nullptr ? std::atoi(given) : 20;
  constexpr int kSteps = 14, kMostRanks = 8;
  const Options options{{"reduction-order", "canonical"},
                        {"steps", std::to_string(kSteps)},
                        {"batch-size", "19"},
                        {"synthetic-size", "100"},
                        {"optimizer", "adamw"},
                        {"lr", "0.001"}};
  const RankResult whole = train(1, options)[0];
  for (int seed = 1; seed <= histories; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(static_cast<unsigned>(seed));
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(dice() % static_cast<unsigned>(high - low + 1));
    };
    Job job(options, kMostRanks);
    int ranks = between(2, kMostRanks);
    job.join(ranks);
    for (int step = between(0, 3); step < kSteps - 1; step += between(1, 3)) {
      if (ranks > 1 && (ranks == kMostRanks || between(0, 1) == 0)) {
        job.until_death(between(0, ranks - 1), std::max(step, 1));
        --ranks;
      } else {
        if (!job.until_pause(step)) break;
        const int more = between(1, std::min(3, kMostRanks - ranks));
        job.join(more);
        ranks += more;
      }
    }
    for (const RankResult& rank : job.to_the_end()) {
      EXPECT_EQ(rank.end.samples_seen, whole.end.samples_seen);
      EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
    }
  }
}

TEST(ChangingRanks, EndWithTheSameNumbersInTheFastOrder) {
  const Options options{{"dtype", "f64"}, {"steps", "10"}, {"batch-size", "21"}};
  const RankResult whole = train(2, options)[0];
  Job job(options, 3);
  job.join(3);
  job.until_death(0, 3);
  job.join(1);
  job.until_death(1, 6);
  for (const RankResult& rank : job.to_the_end()) EXPECT_LT(distance(whole, rank), 1e-13);
}

// 97 samples: 3 steps of 20, the other 37 in steps of 15 (one of 7, where these are cut, first);
// then 10 of the second epoch in one step, and steps of 20 again, the first of them of 10.
TEST(ChangingRanks, TakeEachSampleOnceWhereTheBatchScales) {
  const Options options{
      {"epochs", "2"}, {"batch-size", "20"}, {"synthetic-size", "97"}, {"lr", "0.04"}};
  Job job(options, 4, /*batch_scales=*/true);
  job.join(4);
  job.until_death(1, 2);
  EXPECT_TRUE(job.until_pause(7));
  EXPECT_EQ(job.scale_line(),
            "global batch 15 = 3 ranks x 1 device x 5 x 1, lr 0.03 for 3 of 4 ranks");
  job.join(1);
  const std::vector<RankResult> ranks = job.to_the_end();
  EXPECT_EQ(job.scale_line(),
            "global batch 20 = 4 ranks x 1 device x 5 x 1, lr 0.04 for 4 of 4 ranks");
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.samples_seen, 2 * 97);
    EXPECT_EQ(rank.end.epoch, 2);
    EXPECT_EQ(rank.end.step_in_epoch, 0);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
}

class AveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(AveragingOfChangingRanks, GoesOnAndEndsTogether) {
  const Options options = with({{"steps", "20"}, {"batch-size", "24"}}, GetParam());
  Job job(options, 4);
  job.join(4);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  job.until_death(2, 15);
  const std::vector<RankResult> ranks = job.to_the_end();
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.global_step, 20);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
  // Not the same numbers, since what a lost rank had not averaged yet is lost with it.
  EXPECT_LT(distance(train(4, options)[0], ranks[0]), 0.4);
}

TEST_P(AveragingOfChangingRanks, GoesOnFromOneRank) {
  const Options options = with({{"steps", "30"}, {"batch-size", "24"}}, GetParam());
  Job job(options, 2);
  job.join(2);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  for (const RankResult& rank : job.to_the_end()) EXPECT_EQ(rank.end.global_step, 30);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, AveragingOfChangingRanks,
    testing::Values(Options{{"sync", "params"}, {"sync-every", "4"}},
                    Options{{"sync", "post-local"}, {"sync-every", "4"}, {"sync-warmup", "8"}},
                    Options{{"sync", "diloco"}, {"sync-every", "4"}},
                    Options{{"sync", "slowmo"}, {"sync-every", "4"}, {"average-state", "momentum"}},
                    Options{{"compress", "topk"}, {"topk-ratio", "0.2"}},
                    Options{{"compress", "powersgd"}}, Options{{"compress", "bf16"}}));

}  // namespace
