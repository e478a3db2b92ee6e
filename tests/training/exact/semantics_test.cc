// The semantics that must hold for any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::kExact;
using session_runner::difference;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

TEST(GradientAveraging, EqualsOneProcessForAnySplitOfTheBatch) {
  // 60 samples in batches of 13: five steps an epoch, the last of 8; no batch divides by 2, 3 or 4.
  const Options options = with(kExact, "batch-size=13");
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

TEST(GradientAveraging, OverlappedAndDelayedGiveTheSameBits) {
  const Options options = "epochs=2 bucket-cap-mb=0.1";
  const auto overlapped = train(3, options),
             delayed = train(3, with(options, "delay-allreduce=true"));
  EXPECT_TRUE(same_bits(overlapped[0], delayed[0], io::Section::kParameter));
}

TEST(GradientAveraging, IsTheSameBitsFromRunToRun) {
  const Options options = "epochs=2 threads=2";
  EXPECT_TRUE(same_bits(train(2, options)[0], train(2, options)[0], io::Section::kParameter));
}

// Of a run whose ranks keep to parts of 37 samples; the learning rate leaves the weights as they
// are, so that an epoch's sum of losses tells which samples it has used.
class FileShards : public testing::Test {
 protected:
  struct Part {
    int ranks;
    int end;  // the step after which the run stops
  };
  static constexpr int kSize = 37, kBatch = 6, kSteps = 7;  // of an epoch

  Options options(const std::string& run, const Options& more = {}) const {
    return with("synthetic-size=" + std::to_string(kSize) +
                    " batch-size=" + std::to_string(kBatch) +
                    " dtype=f64 lr=1e-15 shard=file save-every=1000000 save-dir=" + folder_ / run,
                more);
  }

  // The results of rank 0, part by part, each resumed from the one before.
  std::vector<RankResult> chain(const std::string& run, const std::vector<Part>& parts,
                                const Options& more = {}) const {
    std::vector<RankResult> results;
    for (const Part& part : parts) {
      const bool resumed = std::filesystem::exists(folder_ / run);
      results.push_back(
          train(part.ranks, with(options(run, more), "steps=" + std::to_string(part.end) +
                                                         " resume=" + (resumed ? "auto" : "")))[0]);
    }
    return results;
  }

  // Of the losses of one epoch's samples.
  static double sum(const std::vector<RankResult>& parts) {
    double all = 0;
    int step = 0;
    for (const RankResult& part : parts)
      for (const double loss : part.losses) {
        const int first = step++ % kSteps * kBatch;
        all += loss * std::min(kBatch, kSize - first);
      }
    return all;
  }

  static std::string refusal(const std::function<void()>& run) {
    return test_support::error_or<std::exception>([&] { run(); }, "");
  }

  const test_support::TemporaryDirectory folder_;
};

TEST_F(FileShards, OtherRanksUseTheRestOfAnEpochOnce) {
  const double once = sum(chain("whole", {{1, 7}}, "shard=contiguous"));
  int run = 0;
  for (const char* shuffle : {"true", "false"})
    for (const std::vector<Part>& parts :
         std::vector<std::vector<Part>>{{{2, 7}},
                                        {{2, 3}, {3, 7}},
                                        {{3, 1}, {2, 7}},
                                        {{2, 3}, {3, 5}, {1, 7}},
                                        {{4, 2}, {5, 3}, {4, 4}, {2, 6}, {4, 7}},
                                        {{1, 6}, {5, 7}}}) {
      const std::string name = std::to_string(++run);
      const Options more = std::string("shuffle=") + shuffle;
      EXPECT_NEAR(sum(chain(name, parts, more)), once, 1e-9 * once) << "chain " << name;
      // And so does the next epoch.
      EXPECT_NEAR(sum(chain(name, {{3, 14}}, more)), once, 1e-9 * once) << "after chain " << name;
    }
}

TEST_F(FileShards, AreTheSameBitsEachTimeAndWhereTheSameRanksContinue) {
  const Options more = "lr=0.05 momentum=0.9";
  const std::vector<std::vector<Part>> parts{{{2, 3}, {3, 5}, {2, 12}},
                                             {{2, 3}, {3, 5}, {2, 12}},
                                             {{2, 2}, {2, 3}, {3, 4}, {3, 5}, {2, 6}, {2, 12}},
                                             {{2, 3}, {1, 3}, {3, 5}, {2, 12}}};
  std::vector<RankResult> ends;
  for (const std::vector<Part>& each : parts)
    ends.push_back(chain("run" + std::to_string(ends.size()), each, more).back());
  for (const RankResult& end : ends) EXPECT_EQ(difference(ends[0].whole, end.whole), "");
  const RankResult other = chain("other", {{2, 12}}, more).back();
  EXPECT_NE(difference(ends[0].whole, other.whole), "");
}

TEST_F(FileShards, AreNotResumedWithAnotherKindInTheMiddleOfAnEpoch) {
  chain("file", {{2, 3}});
  const std::string text =
      refusal([&] { train(2, options("file", "shard=contiguous steps=5 resume=auto")); });
  EXPECT_VALUES(text, "middle epoch --shard file --shard end epoch");
  chain("slices", {{2, 3}}, "shard=contiguous");
  EXPECT_CONTAINS(refusal([&] { train(2, options("slices", "steps=5 resume=auto")); }),
                  "with another --shard than file, this run has --shard file");
}

// Checkpoints state the divisions of their epoch: one as ever, several by their positions.
TEST_F(FileShards, AreStatedByCheckpoints) {
  const auto divisions = [&](int step) {
    const io::Checkpoint checkpoint =
        io::load_checkpoint(folder_ / "run/" + io::checkpoint_file_name(step));
    engine::PolicyCounters found;
    for (const auto& counter : checkpoint.counters)
      if (counter.first.starts_with("trainer.file_parts")) found.push_back(counter);
    return found;
  };
  chain("run", {{2, 3}, {3, 5}, {3, 6}, {2, 7}, {3, 8}}, "keep-last=10");
  using Counters = engine::PolicyCounters;
  EXPECT_EQ(divisions(3), (Counters{{"trainer.file_parts", 2}}));
  const Counters two{{"trainer.file_parts@0", 2}, {"trainer.file_parts@18", 3}};
  EXPECT_EQ(divisions(5), two);
  EXPECT_EQ(divisions(6), two);
  EXPECT_EQ(divisions(7), (Counters{{"trainer.file_parts", 2}}));  // the epoch has ended
  EXPECT_EQ(divisions(8), (Counters{{"trainer.file_parts", 3}}));
}

TEST_F(FileShards, AreRefusedWhereACheckpointStatesThemWrongly) {
  using Counters = engine::PolicyCounters;
  chain("run", {{2, 3}});
  const std::string path = folder_ / "run/" + io::checkpoint_file_name(3);
  const io::Checkpoint good = io::load_checkpoint(path);
  const auto resume_with = [&](const Counters& counters, std::int64_t step) {
    io::Checkpoint bad = good;
    bad.step_in_epoch = step;
    std::erase_if(bad.counters, [&](const auto& c) {
      return c.first == "trainer.file_parts" ||
             std::ranges::count(counters, c.first, &Counters::value_type::first) > 0;
    });
    bad.counters.insert(bad.counters.end(), counters.begin(), counters.end());
    io::save_checkpoint(bad, path);
    return refusal([&] { train(3, options("run", std::string("steps=5 resume=") + path)); });
  };
  const std::string one = "trainer.file_parts", at = one + "@";
  for (const Counters& counters :
       {Counters{{one, 0}}, Counters{{one, -2}}, Counters{{at, 2}}, Counters{{one, 1'000'001}},
        Counters{{at + "6", 2}}, Counters{{at + "0", 2}, {at + "19", 3}},
        Counters{{at + "0", 2}, {at + "-6", 3}},
        Counters{{at + "0", 2}, {at + "12", 3}, {at + "6", 2}}, Counters{{at + "0", 2}, {at, 3}},
        Counters{{at + "0", 2}, {at + "6x", 3}},
        Counters{{at + "0", 2}, {at + "99999999999999999999", 3}}})
    EXPECT_VALUES(resume_with(counters, 3), "epoch 18 samples")
        << counters.back().first << " = " << counters.back().second;
  for (const auto& [taken, step] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 7}, {0, std::numeric_limits<std::int64_t>::max()}, {37, 0}, {19, 3}, {-1, 3}})
    EXPECT_CONTAINS(resume_with({{one, 2}, {"trainer.taken", taken}}, step), "expected fewer")
        << taken << ", step " << step;
  EXPECT_EQ(resume_with({{one, 2}}, 3), "");
}

TEST(ParameterAveraging, AlwaysEndsInSyncThoughKIsLargerThanTheRun) {
  const auto ranks = train(2, "sync=params sync-every=1000 epochs=1");
  EXPECT_TRUE(same_bits(ranks[0], ranks[1], io::Section::kParameter));
  EXPECT_VALUES(ranks[0].coverage, "6/6 1 times 5 steps");
}

TEST(ParameterAveraging, WarmupAveragesEveryStep) {
  const auto ranks = train(2, "sync=params sync-every=100 sync-warmup=3 epochs=1");
  EXPECT_CONTAINS(ranks[0].coverage, "4 times in 5 steps");
}

TEST(ParameterAveraging, ReplicasDriftApartBetweenAveragingsButNotTooFar) {
  const auto averaged = train(2, with(kExact, "epochs=1"));
  const auto local = train(2, with(kExact, "epochs=1 sync=params sync-every=5"));
  const double d = distance(averaged[0], local[0]);
  EXPECT_GT(d, 0);
  EXPECT_LT(d, 0.2);
}

TEST(NoAveraging, LeavesReplicasAloneAndSaysSo) {
  const auto ranks = train(2, "sync=none epochs=1");
  EXPECT_FALSE(same_bits(ranks[0], ranks[1], io::Section::kParameter));
  EXPECT_CONTAINS(ranks[0].coverage, "nothing was averaged");
}

TEST(Seed, OneSeedIsOneResultAndAnotherIsAnother) {
  EXPECT_EQ(train(1, {})[0].losses, train(1, {})[0].losses);
  EXPECT_NE(train(1, {})[0].losses, train(1, "seed=1")[0].losses);
}

class Resume : public testing::TestWithParam<Options> {};

// Interrupted after every step, resumed each time: the same bits as without a stop, at the same
// save points.
TEST_P(Resume, IsBitExactMidEpoch) {
  const test_support::TemporaryDirectory whole, parts;
  const Options options =
      with("model=convnet synthetic-shape=8x8x1 save-every=1s keep-last=2", GetParam());
  const int world = options.contains("world") ? 3 : 2;
  Options clean = options;
  clean.erase("world");
  const auto uninterrupted = train(world, with(clean, "steps=8 save-dir=" + whole.path().string()));
  std::vector<session_runner::RankResult> last;
  for (int steps = 1; steps <= 8; ++steps)
    last = train(world, with(clean, "steps=" + std::to_string(steps) +
                                        " save-dir=" + parts.path().string() + " resume=auto"));
  for (std::size_t r = 0; r < last.size(); ++r) {
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kParameter)) << "rank " << r;
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kBuffer)) << "rank " << r;
  }
  EXPECT_EQ(last[0].losses.back(), uninterrupted[0].losses.back());
}

INSTANTIATE_TEST_SUITE_P(
    Policies, Resume,
    testing::Values(Options{}, Options("optimizer=adamw lr=0.001"),
                    Options("sync=params sync-every=2"), Options("sync=none"),
                    Options("world=3 batch-size=13"),
                    Options("lr-schedule=step lr-milestones=1 lr-warmup-steps=3")));

TEST(ResumeErrors, AnotherBatchSizeInTheMiddleOfAnEpochIsRefused) {
  const test_support::TemporaryDirectory folder;
  train(1, "steps=2 save-dir=" + folder.path().string());
  EXPECT_CONTAINS(
      test_support::error_of<engine::ModelError>([&] {
        train(1, "steps=4 batch-size=10 save-dir=" + folder.path().string() + " resume=auto");
      }),
      "global batch size 12, this run has 10");
}

TEST(ResumeErrors, AModelThatDoesNotFitNamesTheTensorAndBothShapes) {
  const test_support::TemporaryDirectory folder;
  train(1, "steps=2 save-dir=" + folder.path().string());
  const std::string text = test_support::error_of<io::DataError>([&] {
    train(1, "steps=4 synthetic-shape=7x7x1 save-dir=" + folder.path().string() + " resume=auto");
  });
  EXPECT_CONTAINS(text, "layers.0.weight");
  EXPECT_CONTAINS(text, "[512, 36]");
  EXPECT_CONTAINS(text, "[512, 49]");
}

TEST(ResumeElastic, AnotherWorldSizeGoesOnFromTheSameParameters) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      with(kExact, "save-dir=" + folder.path().string() + " epochs=1 batch-size=13");
  train(3, options);
  const auto two = train(2, with(options, "epochs=2 resume=auto"));
  const auto whole = train(1, with(kExact, "batch-size=13 epochs=2"));
  EXPECT_LT(distance(two[0], whole[0]), 1e-12);
}

TEST(Batch, PerDeviceTimesWorldIsTheGlobalBatch) {
  const auto per_device = train(3, with(kExact, "batch-size-per-device=4"));
  EXPECT_LT(distance(per_device[0], train(1, with(kExact, "batch-size=12"))[0]), 1e-12);
}

TEST(LearningRateScale, LinearIsTheRateTimesTheWorld) {
  const auto scaled = train(2, with(kExact, "lr-scale=linear lr=0.01"));
  const auto plain = train(2, with(kExact, "lr=0.02"));
  EXPECT_TRUE(same_bits(scaled[0], plain[0], io::Section::kParameter));
}

TEST(ClipGrad, ASmallNormLimitsTheStep) {
  const Options one_step = "dtype=f64 steps=1 momentum=0";
  const auto free = train(1, with(one_step, "lr=1"));
  const auto clipped = train(1, with(one_step, "lr=1 clip-grad=0.001"));
  const auto still = train(1, with(one_step, "lr=1e-12"));
  EXPECT_GT(distance(still[0], free[0]), 1e-2);
  EXPECT_LT(distance(still[0], clipped[0]), 1e-2);
  EXPECT_GT(distance(still[0], clipped[0]), 0);
}

}  // namespace
