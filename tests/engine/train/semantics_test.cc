// The semantics that must hold for any number of ranks.
#include <gtest/gtest.h>

#include <set>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "tests/engine/train/exact_support.h"
#include "tests/engine/train/session_runner.h"
#include "tests/support/test_support.h"

namespace {

using exact_support::kExact;
using session_runner::distance;
using session_runner::Options;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

TEST(GradientAveraging, EqualsOneProcessForAnySplitOfTheBatch) {
  // 60 samples in batches of 13: five steps an epoch, the last of 8; no batch divides by 2, 3 or 4.
  const Options options = with(kExact, {{"batch-size", "13"}});
  const auto one = train(1, options);
  for (const int world : {2, 3, 4, 5, 7}) {
    const auto many = train(world, options);
    EXPECT_LT(distance(one[0], many[0]), 1e-12) << world << " ranks";
    ASSERT_EQ(many[0].losses.size(), one[0].losses.size());
    for (std::size_t s = 0; s < one[0].losses.size(); ++s)
      EXPECT_NEAR(many[0].losses[s], one[0].losses[s], 1e-12);
    for (int r = 1; r < world; ++r)
      EXPECT_TRUE(same_bits(many[0], many[static_cast<std::size_t>(r)], io::Section::kParameter))
          << "rank " << r << " of " << world;
  }
}

TEST(GradientAveraging, RanksWithoutSamplesTakePartWithWeightZero) {
  // The last batch has one sample: of four ranks, three have none.
  const Options options = with(kExact, {{"synthetic-size", "13"}, {"batch-size", "4"}});
  EXPECT_LT(distance(train(1, options)[0], train(4, options)[0]), 1e-12);
}

TEST(GradientAveraging, OverlappedAndDelayedGiveTheSameBits) {
  const Options options{{"epochs", "2"}, {"bucket-cap-mb", "0.1"}};
  const auto overlapped = train(3, options),
             delayed = train(3, with(options, {{"delay-allreduce", "true"}}));
  EXPECT_TRUE(same_bits(overlapped[0], delayed[0], io::Section::kParameter));
}

TEST(GradientAveraging, IsTheSameBitsFromRunToRun) {
  const Options options{{"epochs", "2"}, {"threads", "2"}};
  EXPECT_TRUE(same_bits(train(2, options)[0], train(2, options)[0], io::Section::kParameter));
}

// Which samples of an epoch are left depends on the ranks' parts: another number of ranks would use
// some twice and others never.
TEST(FileShards, AreResumedInTheMiddleOfAnEpochByTheSameRanksOnly) {
  const test_support::TemporaryDirectory folder;
  const Options options{{"synthetic-size", "37"},
                        {"batch-size", "6"},
                        {"shard", "file"},
                        {"save-every", "1000000"},
                        {"save-dir", folder.path().string()}};
  train(2, with(options, {{"steps", "3"}}));
  const auto refusal = [&](int world, const Options& more) {
    try {
      train(world, with(with(options, {{"steps", "7"}, {"resume", "auto"}}), more));
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string text = refusal(3, {});
  for (const std::string part : {"in the middle of an epoch", "--shard file over 2 ranks",
                                 "this run has --shard file over 3 ranks", "the end of an epoch"})
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
  EXPECT_NE(refusal(2, {{"shard", "contiguous"}}).find("this run has another --shard than file"),
            std::string::npos);
  EXPECT_EQ(refusal(2, {}), "");  // and ends with the epoch, at step 7
  EXPECT_EQ(refusal(3, {{"steps", "9"}}), "");
}

TEST(ParameterAveraging, EveryStepWithPlainSgdEqualsGradientAveraging) {
  const Options options = with(kExact, {{"momentum", "0"}, {"batch-size", "13"}});
  const auto gradients = train(3, options);
  const auto parameters = train(3, with(options, {{"sync", "params"}, {"sync-every", "1"}}));
  EXPECT_LT(distance(gradients[0], parameters[0]), 1e-12);
}

TEST(ParameterAveraging, AlwaysEndsTogetherThoughKIsLargerThanTheRun) {
  const auto ranks = train(2, {{"sync", "params"}, {"sync-every", "1000"}, {"epochs", "1"}});
  EXPECT_TRUE(same_bits(ranks[0], ranks[1], io::Section::kParameter));
  EXPECT_NE(ranks[0].coverage.find("averaged 6/6 parameters 1 times in 5 steps"), std::string::npos)
      << ranks[0].coverage;
}

TEST(ParameterAveraging, WarmupAveragesEveryStep) {
  const auto ranks =
      train(2, {{"sync", "params"}, {"sync-every", "100"}, {"sync-warmup", "3"}, {"epochs", "1"}});
  EXPECT_NE(ranks[0].coverage.find("4 times in 5 steps"), std::string::npos) << ranks[0].coverage;
}

TEST(ParameterAveraging, ReplicasDriftApartBetweenAveragingsButNotTooFar) {
  const auto together = train(2, with(kExact, {{"epochs", "1"}}));
  const auto local =
      train(2, with(kExact, {{"epochs", "1"}, {"sync", "params"}, {"sync-every", "5"}}));
  const double d = distance(together[0], local[0]);
  EXPECT_GT(d, 0);
  EXPECT_LT(d, 0.2);
}

TEST(NoAveraging, LeavesReplicasAloneAndSaysSo) {
  const auto ranks = train(2, {{"sync", "none"}, {"epochs", "1"}});
  EXPECT_FALSE(same_bits(ranks[0], ranks[1], io::Section::kParameter));
  EXPECT_NE(ranks[0].coverage.find("nothing was averaged"), std::string::npos);
}

TEST(Buffers, LocalDifferAverageAndRank0AreEqual) {
  const Options options{{"model", "convnet"}, {"synthetic-shape", "8x8x1"}, {"epochs", "1"}};
  const auto local = train(2, options);
  EXPECT_TRUE(same_bits(local[0], local[1], io::Section::kParameter));
  EXPECT_FALSE(same_bits(local[0], local[1], io::Section::kBuffer));
  for (const char* mode : {"rank0", "average"}) {
    const auto ranks = train(2, with(options, {{"buffers", mode}}));
    EXPECT_TRUE(same_bits(ranks[0], ranks[1], io::Section::kBuffer)) << mode;
  }
}

TEST(Seed, OneSeedIsOneResultAndAnotherIsAnother) {
  EXPECT_EQ(train(1, {})[0].losses, train(1, {})[0].losses);
  EXPECT_NE(train(1, {})[0].losses, train(1, {{"seed", "1"}})[0].losses);
}

TEST(Evaluation, CountsEverySampleOnceForAnyWorldSize) {
  const Options options{{"epochs", "1"}, {"eval-every", "1e"}, {"sync", "grad"}, {"dtype", "f64"}};
  const double one = train(1, options)[0].last_accuracy;
  for (const int world : {2, 3, 5})
    EXPECT_DOUBLE_EQ(train(world, options)[0].last_accuracy, one) << world;
}

class Resume : public testing::TestWithParam<Options> {};

// Interrupted after every step, resumed each time: the same bits as without a stop, at the same
// save points.
TEST_P(Resume, IsBitExactMidEpoch) {
  const test_support::TemporaryDirectory whole, parts;
  const Options options = with({{"model", "convnet"},
                                {"synthetic-shape", "8x8x1"},
                                {"save-every", "1s"},
                                {"keep-last", "2"}},
                               GetParam());
  const int world = options.contains("world") ? 3 : 2;
  Options clean = options;
  clean.erase("world");
  const auto uninterrupted =
      train(world, with(clean, {{"steps", "8"}, {"save-dir", whole.path().string()}}));
  std::vector<session_runner::RankResult> last;
  for (int steps = 1; steps <= 8; ++steps)
    last = train(world, with(clean, {{"steps", std::to_string(steps)},
                                     {"save-dir", parts.path().string()},
                                     {"resume", "auto"}}));
  for (std::size_t r = 0; r < last.size(); ++r) {
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kParameter)) << "rank " << r;
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kBuffer)) << "rank " << r;
  }
  EXPECT_EQ(last[0].losses.back(), uninterrupted[0].losses.back());
}

INSTANTIATE_TEST_SUITE_P(Policies, Resume,
                         testing::Values(Options{},
                                         Options{{"optimizer", "adamw"}, {"lr", "0.001"}},
                                         Options{{"sync", "params"}, {"sync-every", "2"}},
                                         Options{{"sync", "none"}},
                                         Options{{"world", "3"}, {"batch-size", "13"}},
                                         Options{{"lr-schedule", "step"},
                                                 {"lr-milestones", "1"},
                                                 {"lr-warmup-steps", "3"}}));

TEST(ResumeErrors, AnotherBatchSizeInTheMiddleOfAnEpochIsRefused) {
  const test_support::TemporaryDirectory folder;
  train(1, {{"steps", "2"}, {"save-dir", folder.path().string()}});
  try {
    train(1, {{"steps", "4"},
              {"batch-size", "10"},
              {"save-dir", folder.path().string()},
              {"resume", "auto"}});
    FAIL() << "resumed with another batch size";
  } catch (const engine::ModelError& error) {
    EXPECT_NE(std::string(error.what()).find("global batch size 12, this run has 10"),
              std::string::npos)
        << error.what();
  }
}

TEST(ResumeErrors, AModelThatDoesNotFitNamesTheTensorAndBothShapes) {
  const test_support::TemporaryDirectory folder;
  train(1, {{"steps", "2"}, {"save-dir", folder.path().string()}});
  try {
    train(1, {{"steps", "4"},
              {"synthetic-shape", "7x7x1"},
              {"save-dir", folder.path().string()},
              {"resume", "auto"}});
    FAIL() << "resumed into another model";
  } catch (const io::DataError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("layers.0.weight"), std::string::npos) << text;
    EXPECT_NE(text.find("[512, 36]"), std::string::npos) << text;
    EXPECT_NE(text.find("[512, 49]"), std::string::npos) << text;
  }
}

TEST(ResumeElastic, AnotherWorldSizeGoesOnFromTheSameParameters) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      with(kExact, {{"save-dir", folder.path().string()}, {"epochs", "1"}, {"batch-size", "13"}});
  train(3, options);
  const auto two = train(2, with(options, {{"epochs", "2"}, {"resume", "auto"}}));
  const auto whole = train(1, with(kExact, {{"batch-size", "13"}, {"epochs", "2"}}));
  EXPECT_LT(distance(two[0], whole[0]), 1e-12);
}

TEST(Batch, PerDeviceTimesWorldIsTheGlobalBatch) {
  const auto per_device = train(3, with(kExact, {{"batch-size-per-device", "4"}}));
  EXPECT_LT(distance(per_device[0], train(1, with(kExact, {{"batch-size", "12"}}))[0]), 1e-12);
}

TEST(LearningRateScale, LinearIsTheRateTimesTheWorld) {
  const auto scaled = train(2, with(kExact, {{"lr-scale", "linear"}, {"lr", "0.01"}}));
  const auto plain = train(2, with(kExact, {{"lr", "0.02"}}));
  EXPECT_TRUE(same_bits(scaled[0], plain[0], io::Section::kParameter));
}

TEST(ClipGrad, ASmallNormLimitsTheStep) {
  const Options one_step{{"dtype", "f64"}, {"steps", "1"}, {"momentum", "0"}};
  const auto free = train(1, with(one_step, {{"lr", "1"}}));
  const auto clipped = train(1, with(one_step, {{"lr", "1"}, {"clip-grad", "0.001"}}));
  const auto still = train(1, with(one_step, {{"lr", "1e-12"}}));
  EXPECT_GT(distance(still[0], free[0]), 1e-2);
  EXPECT_LT(distance(still[0], clipped[0]), 1e-2);
  EXPECT_GT(distance(still[0], clipped[0]), 0);
}

}  // namespace
