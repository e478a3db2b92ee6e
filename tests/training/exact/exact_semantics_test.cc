// Exactness across worlds: synchronized BatchNorm, micro-batches, samples that do not share out,
// tiny inputs, threads.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/training/exact_support.h"

namespace {

using namespace exact_support;

TEST(SyncBn, AnyWorldIsOneProcess) {
  const Options options = with(kConv, "batch-size=13 sync-bn=true");  // steps of 13 x 4 and of 8
  const auto one = train(1, options), plain = train(1, with(options, "sync-bn=false"));
  EXPECT_EQ(one[0].losses, plain[0].losses);
  for (const int world : {2, 3, 5}) {
    SCOPED_TRACE(world);
    const auto many = train(world, options);
    EXPECT_LT(distance(one[0], many[0]), 1e-12);
    EXPECT_LT(distance(one[0], many[0], kBuffers), 1e-12);
    expect_losses(one[0], many[0], 1e-12);
    expect_in_sync(many);
    for (const RankResult& rank : many) EXPECT_TRUE(same_bits(many[0], rank, kBuffers));
  }
}

TEST(SyncBn, RanksWithoutSamplesTakePart) {
  const Options options = with(kConv, "synthetic-size=9 batch-size=4 sync-bn=true");
  const auto one = train(1, options), four = train(4, options);
  EXPECT_LT(distance(one[0], four[0]), 1e-12);
  EXPECT_LT(distance(one[0], four[0], kBuffers), 1e-12);
}

TEST(SyncBn, GoesWithParameterAveraging) {
  const auto ranks = train(3, with(kConv, "sync-bn=true sync=params sync-every=2"));
  expect_in_sync(ranks);
  EXPECT_TRUE(same_bits(ranks[0], ranks[2], kBuffers));
}

TEST(GradAccum, EqualsTheBigBatch) {
  const Options options = with(kExact, "batch-size=13");
  const auto whole = train(1, options);
  for (const char* k : {"2", "3", "13", "20"})  // uneven tails; parts without samples
    for (const int world : {1, 3}) {
      SCOPED_TRACE(std::string(k) + " micro-batches on " + std::to_string(world));
      const auto parts = train(world, with(options, std::string("grad-accum=") + k));
      EXPECT_LT(distance(whole[0], parts[0]), 1e-12);
      expect_losses(whole[0], parts[0], 1e-12);
      expect_in_sync(parts);
    }
}

TEST(GradAccum, AveragesOncePerStep) {
  const auto ranks = train(2, "grad-accum=3 epochs=1");
  EXPECT_CONTAINS(ranks[0].coverage, "in each of 5 steps");
}

TEST(GradAccum, PerDeviceBatchIsTheMicroBatch) {
  const auto per_device = train(2, with(kExact, "batch-size-per-device=3 grad-accum=2"));
  EXPECT_LT(distance(per_device[0], train(1, with(kExact, "batch-size=12"))[0]), 1e-12);
}

// With synchronized statistics a micro-batch of all ranks together is what is normalized.
TEST(GradAccum, WithSyncBnIsTheSameForAnyWorldThatCutsAlike) {
  const Options options = with(kConv, "batch-size=12 sync-bn=true grad-accum=2 steps=1 epochs=");
  const auto two = train(2, options), three = train(3, options);
  expect_in_sync(two);
  expect_in_sync(three);
  EXPECT_TRUE(same_bits(three[0], three[2], kBuffers));
}

TEST(GradAccum, ResumesBitByBitInTheMiddleOfAnEpoch) {
  const test_support::TemporaryDirectory whole, parts;
  const Options options = with(kConv, "epochs= grad-accum=2 sync-bn=true save-every=1s");
  const auto uninterrupted = train(2, with(options, "steps=7 save-dir=" + whole.path().string()));
  train(2, with(options, "steps=3 save-dir=" + parts.path().string()));
  const auto resumed =
      train(2, with(options, "steps=7 save-dir=" + parts.path().string() + " resume=auto"));
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(same_bits(uninterrupted[r], resumed[r], io::Section::kParameter));
    EXPECT_TRUE(same_bits(uninterrupted[r], resumed[r], kBuffers));
  }
}

TEST(GradAccum, EqualsTheBigBatchOfText) {
  const test_support::TemporaryDirectory folder;
  write_some_text(folder / "input.txt");
  const Options gpt =
      with(kExact, "model=gpt-nano dataset=text data-dir=" + folder.path().string() +
                       " context=12 epochs= steps=3 batch-size=7");
  const auto whole = train(1, gpt), parts = train(2, with(gpt, "grad-accum=3"));
  EXPECT_LT(distance(whole[0], parts[0]), 1e-12);
  expect_losses(whole[0], parts[0], 1e-12);
}

TEST(Reduction, SumIsTheMeanTimesTheBatch) {
  const Options mean = with(kExact, "synthetic-size=48 batch-size=12 weight-decay=0 lr=0.06");
  const Options sum = with(mean, "reduction=sum lr=0.005");
  const auto one = train(1, mean);
  EXPECT_LT(distance(one[0], train(1, sum)[0]), 1e-12);
  const auto three = train(3, sum);
  EXPECT_LT(distance(one[0], three[0]), 1e-12);
  expect_losses(one[0], three[0], 1e-12);  // what is reported is the mean
  EXPECT_LT(distance(one[0], train(3, with(sum, "grad-accum=2"))[0]), 1e-12);
}

TEST(Uneven, DropLeavesTheIncompleteStepOut) {
  const Options options = with(kExact, "batch-size=16");  // 60 samples: 3 steps and 12 samples
  const auto dropped = train(4, with(options, "uneven=drop"));
  EXPECT_EQ(dropped[0].losses.size(), 6u);
  const auto one = train(1, with(options, "uneven=drop"));
  EXPECT_LT(distance(one[0], dropped[0]), 1e-12);
  EXPECT_EQ(train(4, options)[0].losses.size(), 8u);
}

TEST(Uneven, PadFillsTheEpochForTheWorld) {
  const Options options = with(kExact, "synthetic-size=13 batch-size=8 uneven=pad");
  const auto four = train(4, options);  // 16 positions, two steps of 8
  EXPECT_EQ(four[0].losses.size(), 4u);
  expect_in_sync(four);
  EXPECT_GT(distance(train(4, with(options, "uneven=join"))[0], four[0]), 1e-9);
}

TEST(Uneven, StridedSharesAreTheSameTraining) {
  const Options options = with(kExact, "batch-size=13");
  const auto strided = train(3, with(options, "shard=strided"));
  EXPECT_LT(distance(train(1, options)[0], strided[0]), 1e-12);
  expect_in_sync(strided);
}

TEST(Uneven, EvaluationStaysExact) {
  const Options options = "epochs=1 eval-every=1e dtype=f64 synthetic-size=130 lr=1e-9";
  const double one = train(1, options)[0].last_accuracy;  // 13 test samples
  for (const char* mode : {"drop", "pad"})
    EXPECT_DOUBLE_EQ(train(4, with(options, std::string("uneven=") + mode))[0].last_accuracy, one)
        << mode;
}

TEST(Uneven, AnotherModeInTheMiddleOfAnEpochIsRefused) {
  const test_support::TemporaryDirectory folder;
  const Options options = "batch-size=16 save-dir=" + folder.path().string();
  train(2, with(options, "steps=3"));
  EXPECT_CONTAINS(test_support::error_of<engine::ModelError>(
                      [&] { train(2, with(options, "steps=6 uneven=drop resume=auto")); }),
                  "steps per epoch 4, this run has 3");
}

TEST(Uneven, RefusesWhatDoesNotShareOut) {
  EXPECT_VALUES(refusal(4, "uneven=drop batch-size=10"), "10 4 ranks");
  EXPECT_CONTAINS(refusal(2, "uneven=drop batch-size=64"), "more than the 60 samples");
}

// Data sets and batches smaller than the world, last batches of one: right results and an end, with
// every --sync.
class Tiny : public testing::TestWithParam<Options> {};

TEST_P(Tiny, TrainsToTheEnd) {
  for (const char* size : {"1", "3", "5"})
    for (const char* batch : {"1", "2", "4"}) {
      SCOPED_TRACE(std::string(size) + " samples in batches of " + batch);
      const Options options = with(
          with(kConv, std::string("synthetic-size=") + size + " batch-size=" + batch + " epochs=2"),
          GetParam());
      const auto four = train(4, options);
      for (const double loss : four[0].losses) EXPECT_TRUE(std::isfinite(loss));
      EXPECT_EQ(distance(four[0], four[0]), 0) << "a parameter is not a number";
      if (!options.contains("sync") || options.at("sync") != "none") expect_in_sync(four);
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, Tiny,
                         testing::Values(Options{}, Options("sync-bn=true"),
                                         Options("sync=params sync-every=2"), Options("sync=none"),
                                         Options("grad-accum=3 sync-bn=true"),
                                         Options("buffers=average"), Options("buffers=rank0"),
                                         Options("reduction-order=canonical sync-bn=true")));

TEST(TinyInputs, ABatchSmallerThanTheWorldIsOneProcess) {
  for (const Options& options : {with(kExact, "batch-size=3 synthetic-size=10"),
                                 with(kConv, "batch-size=3 synthetic-size=10 sync-bn=true")}) {
    const auto one = train(1, options), five = train(5, options);
    EXPECT_LT(distance(one[0], five[0]), 1e-12);
    expect_losses(one[0], five[0], 1e-12);
  }
}

TEST(Float32, AnySplitIsOneProcessToRounding) {
  const Options options = "batch-size=13 epochs=1 lr=0.05";
  const auto one = train(1, options);
  for (const int world : {2, 3, 4, 5})
    EXPECT_LT(distance(one[0], train(world, options)[0]), 1e-6) << world;
}

TEST(Buffers, AverageIsTheMeanAndRank0IsRank0s) {
  const Options options = with(kConv, "synthetic-size=24 batch-size=12");
  const auto local = train(2, options), average = train(2, with(options, "buffers=average")),
             rank0 = train(2, with(options, "buffers=rank0"));
  EXPECT_TRUE(same_bits(local[0], local[1], io::Section::kParameter));
  EXPECT_FALSE(same_bits(local[0], local[1], kBuffers));
  EXPECT_TRUE(same_bits(rank0[0], local[0], kBuffers));
  EXPECT_TRUE(same_bits(rank0[1], local[0], kBuffers));
  EXPECT_TRUE(same_bits(average[0], average[1], kBuffers));
  for (std::size_t k = 0; k < local[0].state.size(); ++k) {
    const io::NamedArray &a = local[0].state[k], &b = local[1].state[k],
                         &mean = average[0].state[k];
    if (a.section != kBuffers || a.type != base::DType::kF64) continue;
    const auto at = [](const io::NamedArray& array, std::size_t i) {
      return reinterpret_cast<const double*>(array.data.data())[i];
    };
    for (std::size_t i = 0; i < a.data.size() / sizeof(double); ++i)
      EXPECT_NEAR(at(mean, i), (at(a, i) + at(b, i)) / 2, 1e-15) << a.name;
  }
}

TEST(Deterministic, AnyNumberOfThreadsIsTheSameBits) {
  const Options options =
      "deterministic=true model=convnet synthetic-shape=16x16x3 batch-size=30 "
      "epochs=1 eval-every=1e clip-grad=0.5";
  const auto one = train(1, options);
  EXPECT_TRUE(same_bits(one[0], train(1, options)[0], io::Section::kParameter));
  for (const char* threads : {"2", "3", "32"}) {
    const auto many = train(1, with(options, std::string("threads=") + threads));
    EXPECT_TRUE(same_bits(one[0], many[0], io::Section::kParameter)) << threads;
    EXPECT_TRUE(same_bits(one[0], many[0], kBuffers)) << threads;
    EXPECT_EQ(one[0].losses, many[0].losses) << threads;
  }
}

}  // namespace
