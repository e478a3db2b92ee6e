// Trainings whose ranks change on the way: what is left goes on from memory, and ends as if nothing
// had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <set>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/core/error.h"
#include "engine/train/saving/weights.h"
#include "io/base/digests/digest.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/training/changing_ranks.h"
#include "tools/run/parts/session_model.h"

namespace {

using namespace session_runner;
using changing_ranks::Job;

class CanonicalOrderOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(CanonicalOrderOfChangingRanks, EndsWithTheSameBits) {
  const Options options =
      with("reduction-order=canonical steps=12 batch-size=21 lr=0.05", GetParam());
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
    EXPECT_EQ(difference(whole.whole, rank.whole), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CanonicalOrderOfChangingRanks,
    testing::Values(Options{}, Options("optimizer=adamw lr=0.001 ema=0.9"),
                    Options("optimizer=muon clip-grad=0.5"),
                    Options("model=convnet synthetic-shape=8x8x1"),
                    Options("model=resnet20-cifar synthetic-shape=8x8x3 sync-bn=true"),
                    Options("model=resnet20-cifar synthetic-shape=8x8x3")));

// Small, so that there is time for many trainings.
const std::string kDense = test_support::layers_toml(R"(
sample_shape=[6,6,1] classes=10
flatten
dense hidden out=12
relu
dense fc out=classes
)");
const std::string kBatchNorm = test_support::layers_toml(R"(
sample_shape=[6,6,1] classes=10
conv2d conv out_channels=4 padding=1
batch_norm2d norm
relu
flatten
dense fc out=classes
)");

struct RandomHistory {
  int changes = 0;
  std::set<int> worlds;  // that have done a step
  std::vector<RankResult> end;
};

// Deaths and arrivals as `seed` decides.
RandomHistory random_history(const Options& options, int steps, int max_ranks, int seed) {
  std::mt19937 dice(static_cast<unsigned>(seed));
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(dice() % static_cast<unsigned>(high - low + 1));
  };
  RandomHistory history;
  Job job(options, max_ranks);
  job.join(between(2, max_ranks));
  for (int step = between(0, 3); step < steps - 1; step += between(1, 3), ++history.changes) {
    const int ranks = job.world_size();
    history.worlds.insert(ranks);
    if (ranks > 1 && (ranks == max_ranks || between(0, 1) == 0)) {
      job.until_death(between(0, ranks - 1), std::max(step, 1));
    } else {
      if (!job.until_pause(step)) break;
      job.join(between(1, std::min(3, max_ranks - ranks)));
    }
  }
  history.worlds.insert(job.world_size());
  history.end = job.to_the_end();
  return history;
}

std::size_t arrays_in(const io::Checkpoint& state, io::Section section) {
  return static_cast<std::size_t>(
      std::ranges::count(state.arrays, section, &io::NamedArray::section));
}

// 40 trainings, or as many as ENGINE_ELASTIC_HISTORIES says. All that a rank would continue from is
// compared: parameters, what the optimizer and the averages remember, running statistics, counters.
TEST(ChangingRanks, EndWithTheSameBitsWhateverHappens) {
  const char* given = std::getenv("ENGINE_ELASTIC_HISTORIES");
  const int histories = given != nullptr ? std::atoi(given) : 40;
  constexpr int kSteps = 14, kMaxRanks = 8;
  const test_support::TemporaryDirectory folder;
  const std::string dense = folder / "dense.toml", norm = folder / "norm.toml";
  test_support::write_text(dense, kDense);
  test_support::write_text(norm, kBatchNorm);
  const Options common = "reduction-order=canonical steps=" + std::to_string(kSteps) +
                         " batch-size=19 synthetic-size=100";
  const std::array<Options, 4> kinds{
      with(common, std::string("model=") + dense + " optimizer=adamw lr=0.001 ema=0.9"),
      with(common, std::string("model=") + norm + " lr=0.05 momentum=0.9"),
      with(common, std::string("model=") + norm + " optimizer=adamw clip-grad=0.5"),
      with(common, std::string("model=") + norm + " sync-bn=true lr=0.05")};
  std::array<io::Checkpoint, kinds.size()> whole;
  for (std::size_t i = 0; i < kinds.size(); ++i) whole[i] = train(1, kinds[i])[0].whole;
  ASSERT_EQ(arrays_in(whole[0], io::Section::kOptimizer), 2 * 4u);  // both moments of each
  ASSERT_EQ(arrays_in(whole[0], io::Section::kAverage), 4u);
  ASSERT_EQ(arrays_in(whole[1], io::Section::kOptimizer), 6u);
  ASSERT_EQ(arrays_in(whole[2], io::Section::kBuffer), 3u);
  std::set<int> worlds;
  for (int seed = 1; seed <= histories; ++seed) {
    SCOPED_TRACE(seed);
    const auto kind = static_cast<std::size_t>(seed) % kinds.size();
    const RandomHistory history = random_history(kinds[kind], kSteps, kMaxRanks, seed);
    ASSERT_GE(history.changes, 3);
    worlds.insert(history.worlds.begin(), history.worlds.end());
    for (const RankResult& rank : history.end) ASSERT_EQ(difference(whole[kind], rank.whole), "");
  }
  EXPECT_TRUE(histories < 20 || worlds == (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ChangingRanks, SaveTheSameFiles) {
  constexpr int kSteps = 14;
  const test_support::TemporaryDirectory folder;
  const std::string norm = folder / "norm.toml";
  test_support::write_text(norm, kBatchNorm);
  for (const char* optimizer : {"adamw", "lion"}) {
    const std::string whole = folder / "whole-" + optimizer,
                      changing = folder / "changing-" + optimizer;
    const Options options = std::string("reduction-order=canonical model=") + norm +
                            " steps=" + std::to_string(kSteps) +
                            " batch-size=19 synthetic-size=100 optimizer=" + optimizer +
                            " ema=0.9 save-every=5s keep-last=0";
    train(3, with(options, std::string("save-dir=") + whole));
    EXPECT_GE(
        random_history(with(options, std::string("save-dir=") + changing), kSteps, 8, 3).changes,
        3);
    for (const std::int64_t step : {5, 10, kSteps}) {
      const std::string name = "/" + io::checkpoint_file_name(step);
      EXPECT_EQ(difference(io::load_checkpoint(whole + name), io::load_checkpoint(changing + name)),
                "")
          << name;
    }
  }
}

// The disk is so slow that the checkpoint of step 3 is on its way to it while ranks are lost and
// step 5 is done.
TEST(ChangingRanks, GoOnWhileACheckpointIsBeingWritten) {
  const test_support::TemporaryDirectory folder;
  const std::string run = folder / "run";
  std::promise<void> disk;
  std::atomic<int> given_up = 0;
  Job job(std::string("steps=9 save-every=3s save-async=true keep-last=0 save-dir=") + run, 3);
  job.before_write([&given_up, ready = disk.get_future().share()] {
    if (ready.wait_for(test_support::deadline(std::chrono::seconds(10))) !=
        std::future_status::ready)
      ++given_up;
  });
  job.join(3);
  job.until_death(2, 4);
  job.until_death(1, 5);
  EXPECT_EQ(given_up, 0);
  disk.set_value();
  const std::vector<RankResult> end = job.to_the_end();
  std::vector<std::string> all;
  for (const int step : {3, 6, 9}) all.push_back(run + "/" + io::checkpoint_file_name(step));
  EXPECT_EQ(end.front().saved, all);
  for (const std::string& path : all) EXPECT_NO_THROW(io::load_checkpoint(path)) << path;
}

TEST(ChangingRanks, EndWithTheSameNumbersInTheFastOrder) {
  const Options options = "dtype=f64 steps=10 batch-size=21";
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
  const Options options = "epochs=2 batch-size=20 synthetic-size=97 lr=0.04";
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

// 15 samples in a step of three ranks, then steps of 20 of four ranks: no full one of them is done.
TEST(ChangingRanks, AreComparedWithTheRunBeforeAFullStepOfTheNewBatch) {
  const test_support::TemporaryDirectory folder;
  const Options options = "synthetic-size=97 batch-size=20";
  const Options job = with(
      options, std::string("elastic=1:4 elastic-batch=scale steps=1 save-every=1000000 save-dir=") +
                   folder / "run");
  train(3, job);
  const io::Checkpoint begun = train(4, with(job, "resume=auto"))[0].whole;
  ASSERT_EQ(begun.step_in_epoch, 0);
  ASSERT_EQ(engine::find_counter(begun.counters, "trainer.taken", 0), 15);
  const std::string path = folder / "begun";
  io::save_checkpoint(begun, path);
  const auto resume_with = [&](const Options& more) -> std::string {
    return test_support::error_or<engine::ModelError>(
        [&] {
          const Options rest = std::string("epochs=1 resume=") + path;
          EXPECT_EQ(train(2, with(options, rest, more))[0].end.samples_seen, 97);
        },
        "");
  };
  for (const auto& [option, value, text] : std::vector<std::array<std::string, 3>>{
           {"seed", "9", "with seed 0, this run has 9"},
           {"batch-size", "24", "with global batch size 20, this run has 24"},
           {"synthetic-size", "98", "with data set size 97, this run has 98"},
           {"shard", "file", "with another --shard than file, this run has --shard file"}}) {
    const std::string refusal = resume_with({{option, value}});
    EXPECT_VALUES(refusal, "middle epoch " + text) << option;
  }
  EXPECT_EQ(resume_with({}), "");
}

// With so low a rate the change of the weights is that by the sum of all samples' gradients,
// whatever their order; one sample of 97 left out or used twice would show in the second digit.
TEST(ChangingRanks, TakeEachSampleOnceWhereRanksKeepToAPart) {
  const Options options =
      "steps=10 batch-size=20 synthetic-size=97 lr=1e-7 momentum=0 dtype=f64 "
      "reduction=sum shard=file";
  const RankResult start = train(1, with(options, "lr=1e-15"))[0];
  const RankResult whole = train(1, with(options, "shard=contiguous"))[0];
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("history " + std::to_string(seed));
    const RandomHistory history = random_history(options, 10, /*max_ranks=*/6, seed);
    EXPECT_GE(history.changes, 2);  // the first by step 3, the second by step 6
    for (const RankResult& rank : history.end) {
      EXPECT_EQ(rank.end.samples_seen, 2 * 97);
      EXPECT_LT(distance(whole, rank), 1e-4 * distance(start, whole));
    }
  }
}

// The same where the batch scales: the rest of the epoch in other steps and other parts.
TEST(ChangingRanks, KeepToPartsWhereTheBatchScales) {
  const Options options = "epochs=2 batch-size=20 synthetic-size=97 lr=0.04 shard=file";
  Job job(options, 4, /*batch_scales=*/true);
  job.join(4);
  job.until_death(1, 2);
  EXPECT_TRUE(job.until_pause(7));
  job.join(1);
  const std::vector<RankResult> ranks = job.to_the_end();
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.samples_seen, 2 * 97);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
}

class AveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(AveragingOfChangingRanks, GoesOnAndEndsInSync) {
  const Options options = with("steps=20 batch-size=24", GetParam());
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
  const Options options = with("steps=30 batch-size=24", GetParam());
  Job job(options, 2);
  job.join(2);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  for (const RankResult& rank : job.to_the_end()) EXPECT_EQ(rank.end.global_step, 30);
}

// One rank is left for a while. It takes the outer steps of the schedule, and the memory of the
// earlier ones is not lost.
class OuterStepsOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(OuterStepsOfChangingRanks, GoOnWithOneRank) {
  Job job(with("steps=24 batch-size=24 sync-every=4 synthetic-size=1000", GetParam()), 2);
  job.join(2);
  job.until_death(0, 5);
  EXPECT_TRUE(job.until_pause(13));
  const auto outer_steps = [](const io::Checkpoint& state) {
    return engine::find_counter(state.counters, "averaging.outer_steps", -1);
  };
  const std::int64_t fragments = std::max<std::int64_t>(
      1, engine::find_counter(job.beginnings()[0].counters, "averaging.fragments", 1));
  const int warmup = GetParam().contains("sync-warmup") ? 4 : 0;
  const auto expected = [&](int step) { return fragments * ((step - warmup) / 4); };
  EXPECT_EQ(outer_steps(job.beginnings()[0]), expected(6));
  job.join(1);
  const std::vector<RankResult> ranks = job.to_the_end();
  EXPECT_EQ(outer_steps(job.beginnings()[0]), expected(13));
  for (const RankResult& rank : ranks) EXPECT_EQ(outer_steps(rank.whole), expected(24));
}

// A rank is lost in the averaging after step 8. The parameters are the mean of the others, which
// then take the outer step.
class LossInAnAveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(LossInAnAveragingOfChangingRanks, CostsNoOuterStep) {
  for (const int ranks : {2, 3}) {
    Job job(with("dtype=f64 steps=24 batch-size=24 sync-every=4 synthetic-size=1000 lr=0.01 "
                 "lr-schedule=cosine",
                 GetParam()),
            ranks);
    job.join(ranks);
    job.until_death(1, 7);
    ASSERT_EQ(job.kept_by(0).state.checkpoint.value().global_step, 8);
    ASSERT_GT(job.kept_by(0).state.apart, 0);
    for (const RankResult& rank : job.to_the_end())
      EXPECT_EQ(engine::find_counter(rank.whole.counters, "averaging.outer_steps", -1), 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, LossInAnAveragingOfChangingRanks,
                         testing::Values(Options("sync=diloco"), Options("sync=slowmo")),
                         [](const auto& p) { return p.param.at("sync"); });

INSTANTIATE_TEST_SUITE_P(Policies, OuterStepsOfChangingRanks,
                         testing::Values(Options("sync=diloco"), Options("sync=slowmo"),
                                         Options("sync=diloco sync-warmup=4"),
                                         Options("sync=diloco sync-island=host"),
                                         Options("sync=gossip outer-momentum=0.5"),
                                         Options("sync=streaming sync-fragments=1")));

INSTANTIATE_TEST_SUITE_P(Policies, AveragingOfChangingRanks,
                         testing::Values(Options("sync=params sync-every=4"),
                                         Options("sync=post-local sync-every=4 sync-warmup=8"),
                                         Options("sync=diloco sync-every=4"),
                                         Options("sync=streaming sync-every=4 sync-overlap=2"),
                                         Options("sync=gossip sync-every=4"),
                                         Options("sync=gossip sync-every=2 outer-momentum=0.5"),
                                         Options("sync=slowmo sync-every=4 average-state=momentum"),
                                         Options("compress=topk topk-ratio=0.2"),
                                         Options("compress=powersgd"), Options("compress=bf16"),
                                         Options("compress=int8"),
                                         Options("compress=int4 sync=streaming sync-every=4 "
                                                 "sync-overlap=2")));

// Which ranks are late depends on time, and changes that are late when a rank is lost are lost.
class StaleAveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(StaleAveragingOfChangingRanks, GoesOnLearnsAndEndsInSync) {
  const Options options = with("steps=40 batch-size=24 log-every=5", GetParam());
  Job job(options, 4);
  job.join(4);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  job.until_death(2, 16);
  const std::vector<RankResult> ranks = job.to_the_end();
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.global_step, 40);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
  const RankResult fresh = train(1, "lr=1e-9 steps=1")[0], whole = train(4, options)[0];
  EXPECT_LT(distance(whole, ranks[0]), distance(whole, fresh) / 2);
}

INSTANTIATE_TEST_SUITE_P(Policies, StaleAveragingOfChangingRanks,
                         testing::Values(Options("sync=diloco sync-every=4 stale=2"),
                                         Options("sync=params sync-every=2 stale=1")));

// Three ranks average after step 4. They take the samples in turn: the 26 of steps 5 and 6, which
// are the 53rd to the 78th, are 8 for the first rank and 9 for each of the others.
const Options kThirteen = "dtype=f64 steps=20 batch-size=13 synthetic-size=600";

std::vector<double> numbers(const std::vector<io::NamedArray>& arrays, io::Section section) {
  std::vector<double> all;
  for (const io::NamedArray& array : arrays) {
    if (array.section != section) continue;
    const auto before = all.size(), count = array.data.size() / sizeof(double);
    all.resize(before + count);
    std::memcpy(all.data() + before, array.data.data(), count * sizeof(double));
  }
  return all;
}

std::vector<double> parameters_of(const tools::SessionModel& model) {
  return numbers(engine::export_state(model.state, {}), io::Section::kParameter);
}

class ExactAveragingOfChangingRanks : public testing::TestWithParam<Options> {};

// A rank dies after step 5, when the others are in step 6 and cannot know. What the lost rank did
// since the averaging is in no mean.
TEST_P(ExactAveragingOfChangingRanks, IsTheMeanOfWhoIsLeftByTheSamplesThatEachHasSeen) {
  using Section = io::Section;
  Job job(with(kThirteen, "sync-every=4", GetParam()), 3);
  job.join(3);
  job.until_death(1, 5);
  const tools::RetainedState &first = job.kept_by(0), &second = job.kept_by(1);
  ASSERT_EQ(first.state.checkpoint.value().global_step, 6);
  ASSERT_EQ(second.state.checkpoint.value().global_step, 6);
  EXPECT_EQ(first.state.apart, 8);
  EXPECT_EQ(second.state.apart, 9);
  const std::vector<double> a = parameters_of(*first.model), b = parameters_of(*second.model);
  ASSERT_NE(a, b);
  std::vector<double> mean(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) mean[i] = a[i] * (8.0 / 17) + b[i] * (9.0 / 17);
  const std::vector<double> outer =
      numbers(first.state.checkpoint.value().arrays, Section::kAveraging);
  EXPECT_EQ(outer, numbers(second.state.checkpoint.value().arrays, Section::kAveraging));

  job.join(1);
  ASSERT_TRUE(job.until_pause(6));
  const std::vector<io::Checkpoint>& begin = job.beginnings();
  ASSERT_EQ(begin.size(), 3u);
  for (const io::Checkpoint& rank : begin) {
    EXPECT_EQ(rank.global_step, 6);
    EXPECT_EQ(numbers(rank.arrays, Section::kParameter), mean);
    EXPECT_EQ(numbers(rank.arrays, Section::kAveraging), outer);
  }
  // Momenta are each rank's own; the newcomer has those of the first.
  const auto momentum = [&](std::size_t rank) {
    return numbers(begin[rank].arrays, Section::kOptimizer);
  };
  EXPECT_NE(momentum(0), momentum(1));
  EXPECT_EQ(momentum(0), momentum(2));
  EXPECT_EQ(outer.empty(), GetParam().at("sync") == "params");
  EXPECT_TRUE(outer.empty() || std::ranges::any_of(outer, [](double v) { return v != 0; }));
}

INSTANTIATE_TEST_SUITE_P(Policies, ExactAveragingOfChangingRanks,
                         testing::Values(Options("sync=params"), Options("sync=diloco"),
                                         Options("sync=slowmo")),
                         [](const auto& p) { return p.param.at("sync"); });

// The group fails while the ranks are apart. An exchange has arrived on the first rank alone, which
// has also made an outer step with it: on the second one its sums and anchor are older, as would be
// so after a failed collective. What all members share comes from one of them, with the counters
// that say what is in flight.
class SharedAveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(SharedAveragingOfChangingRanks, ComesWithItsCountersFromOneRank) {
  Job job(with(kThirteen, "sync-every=4", GetParam()), 3);
  job.join(3);
  job.until_death(1, 5);
  const auto shared = [](const io::Checkpoint& state) {
    return numbers(state.arrays, io::Section::kAveraging);
  };
  const auto in_flight = [](const io::Checkpoint& state) {
    std::vector<std::int64_t> steps;
    for (const auto& [name, value] : state.counters)
      if (name.ends_with(".sent_at") || name.ends_with("outer_steps")) steps.push_back(value);
    return steps;
  };
  const io::Checkpoint first = job.kept_by(0).state.checkpoint.value();
  io::Checkpoint& second = job.kept_by(1).state.checkpoint.value();
  ASSERT_GT(job.kept_by(0).state.apart, 0);
  for (io::NamedArray& array : second.arrays)
    if (array.section == io::Section::kAveraging)
      for (std::byte& byte : array.data) byte ^= std::byte{1};
  for (auto& [name, value] : second.counters)
    if (name.ends_with(".sent_at")) value = 0;
  ASSERT_FALSE(shared(first).empty());
  ASSERT_NE(shared(first), shared(second));

  job.join(1);
  ASSERT_TRUE(job.until_pause(6));
  for (const io::Checkpoint& rank : job.beginnings()) {
    EXPECT_EQ(shared(rank), shared(first));
    EXPECT_EQ(in_flight(rank), in_flight(first));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SharedAveragingOfChangingRanks,
                         testing::Values(Options("sync=streaming sync-overlap=2"),
                                         Options("sync=diloco"), Options("sync=slowmo")),
                         [](const auto& p) { return p.param.at("sync"); });

// In each trial a rank dies in another one of its collectives, from the end of an epoch of two
// steps to the end of the run: those of the schedule, of an epoch's end, of the loop. The remaining
// ranks begin with the same parameters and the same memory of averagings, and stay equal wherever
// they are compared.
class FailedCollectivesOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(FailedCollectivesOfChangingRanks, LeaveReplicasThatAreEqual) {
  const test_support::TemporaryDirectory folder;
  const std::string model = folder / "dense.toml";
  test_support::write_text(model, kDense);
  const Options options =
      with("steps=10 batch-size=24 synthetic-size=48 verify-every=1 momentum=0.5 lr=0.05",
           {{"model", model}}, GetParam());
  const auto in_common = [](const io::Checkpoint& state) {
    std::vector<std::string> all;
    for (const io::NamedArray& array : state.arrays)
      if (array.section == io::Section::kParameter ||
          (array.section == io::Section::kAveraging &&
           array.name.find("_error") == std::string::npos))
        all.push_back(array.name + " " +
                      base::hex_text(base::short_digest_of(
                          {reinterpret_cast<const char*>(array.data.data()), array.data.size()})));
    // A late rank has skipped steps, so its optimizer has made fewer.
    for (const auto& [name, value] : state.counters)
      if (!name.ends_with("bytes_sent") && name != "optimizer.steps")
        all.push_back(name + " " + std::to_string(value));
    return all;
  };
  int call = 1;
  for (; call < 200; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    Job job(options, 3);
    job.join(3);
    if (!job.until_death_in_call(1, 4, call)) break;
    const std::vector<RankResult> ends = job.to_the_end();
    ASSERT_EQ(ends.size(), 2u);
    ASSERT_EQ(in_common(job.beginnings()[0]), in_common(job.beginnings()[1]));
    ASSERT_EQ(ends[0].end.global_step, 10);
    ASSERT_TRUE(same_bits(ends[0], ends[1], io::Section::kParameter));
  }
  EXPECT_GT(call, 12);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, FailedCollectivesOfChangingRanks,
    testing::Values(
        Options("sync=streaming sync-every=4 sync-overlap=2"),
        Options("sync=streaming sync-every=4 sync-overlap=2 compress=int8"),
        Options("sync=streaming sync-every=3 sync-overlap=0 sync-fragments=1 sync-mixing=0.5"),
        Options("sync=streaming sync-every=3 sync-overlap=0 sync-fragments=1 compress=int4"),
        Options("sync=params sync-every=3"), Options("sync=params sync-every=3 compress=int8"),
        Options("sync=params sync-every=3 average-state=all"), Options("sync=diloco sync-every=3"),
        Options("sync=slowmo sync-every=3 average-state=momentum"),
        Options("sync=post-local sync-every=3 sync-warmup=5"), Options("sync=gossip sync-every=2"),
        Options("sync=gossip sync-every=3 outer-momentum=0.5"),
        Options("sync=params sync-every=3 stale=2"), Options("sync=diloco sync-every=3 stale=2"),
        Options("sync=grad"), Options("compress=int4"), Options("compress=powersgd")));

// Each rank keeps its error feedback; that of a rank that joins begins at zero.
class CompressionOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(CompressionOfChangingRanks, GivesNobodyTheErrorFeedbackOfAnother) {
  Job job(with(kThirteen, "dtype=f32", GetParam()), 3);
  job.join(3);
  job.until_death(1, 6);
  const auto feedback = [](const io::Checkpoint& state) {
    std::vector<std::vector<std::byte>> all;
    for (const io::NamedArray& array : state.arrays)
      if (array.section == io::Section::kAveraging) all.push_back(array.data);
    return all;
  };
  const auto first = feedback(job.kept_by(0).state.checkpoint.value()),
             second = feedback(job.kept_by(1).state.checkpoint.value());
  ASSERT_FALSE(first.empty());
  EXPECT_NE(first, second);
  job.join(1);
  ASSERT_TRUE(job.until_pause(8));
  EXPECT_EQ(feedback(job.beginnings().at(0)), first);
  EXPECT_EQ(feedback(job.beginnings().at(1)), second);
  for (const std::vector<std::byte>& array : feedback(job.beginnings().at(2)))
    EXPECT_TRUE(std::ranges::all_of(array, [](std::byte b) { return b == std::byte{0}; }));
}

INSTANTIATE_TEST_SUITE_P(Methods, CompressionOfChangingRanks,
                         testing::Values(Options("compress=topk topk-ratio=0.1"),
                                         Options("compress=int4"), Options("compress=sparse"),
                                         Options("compress=sparse sync=params sync-every=2")));

}  // namespace
