// --reduction-order canonical on CUDA devices: the same bits for any number of ranks, over NCCL and
// through host memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/changing_ranks.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/exact_support.h"

namespace {

using namespace exact_support;
using cuda_ranks::kMaxRanks;
using cuda_ranks::on_devices;
using test_support::TemporaryDirectory;

// 64 samples in steps of 21: shards of two and three samples, and a last step of one sample.
const Options kCanonical =
    "reduction-order=canonical batch-size=21 epochs=1 clip-grad=1 eval-every=1";
const Options kConvnet = "model=convnet synthetic-shape=4x4x1";

const Options kCpu = {{"device", "cpu"}, {"gpu-devices", ""}, {"backend", ""}};

void expect_canonical(const RankResult& one, const std::vector<RankResult>& many) {
  for (const RankResult& rank : many) {
    EXPECT_TRUE(same_bits(one, rank, io::Section::kParameter));
    EXPECT_TRUE(same_bits(one, rank, kBuffers));
  }
  ASSERT_FALSE(one.losses.empty());
  EXPECT_EQ(one.losses, many[0].losses);
  EXPECT_EQ(one.last_eval.loss, many[0].last_eval.loss);
  EXPECT_EQ(one.last_accuracy, many[0].last_accuracy);
}

class CudaCanonical : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(GetParam(), kMaxRanks); !missing.empty())
      GTEST_SKIP() << missing;
  }
  static Options devices(int world) { return on_devices(world, GetParam() && world > 1); }
  static RankResult one(const Options& options) { return train(1, with(options, devices(1)))[0]; }
  static std::vector<RankResult> many(int world, const Options& options) {
    return train(world, with(options, devices(world)));
  }
};

TEST_P(CudaCanonical, AnyWorldIsTheSameBits) {
  for (const Options& more : {with(cuda_ranks::small_mlp(), "momentum=0.9"), kConvnet,
                              with(kConvnet, "sync-bn=true grad-accum=2"),
                              // Most shards have one sample or none.
                              with(kConvnet, "synthetic-size=11 batch-size=4")}) {
    const Options options = with(kCanonical, more);
    const RankResult expected = one(options);
    for (const int world : {2, 3, 4}) {
      SCOPED_TRACE(more.begin()->first + " on " + std::to_string(world));
      expect_canonical(expected, many(world, options));
    }
  }
}

// Three ranks have two nodes each, or one.
TEST_P(CudaCanonical, IsTheSameBitsBesideOtherOptions) {
  const Options canonical = with(kCanonical, "epochs= steps=4");
  for (const Options& more :
       {with(kConvnet, "optimizer=adamw lr=0.001 shard-optimizer=true ema=0.9"),
        with(kConvnet, "amp=bf16 sync-bn=true"), with(kConvnet, "amp=O2 loss-scale=dynamic"),
        with(cuda_ranks::small_mlp(), "freeze=layers.0.* grad-accum=2"),
        with(kConvnet, "reduction-shards=16"),
        with(cuda_ranks::small_mlp(), "momentum=0.9 lr=1e6 on-nonfinite=skip")}) {
    SCOPED_TRACE(more.begin()->first);
    const Options options = with(canonical, more);
    expect_canonical(one(options), many(3, options));
  }
}

TEST_P(CudaCanonical, AnySharesAreTheSameBits) {
  const Options options = with(kCanonical, kConvnet);
  const RankResult expected = one(options);
  for (const char* shares : {"shares=3:1", "shares=1:6"})
    expect_canonical(expected, many(2, with(options, shares)));
  expect_canonical(expected, many(3, with(options, "shares=1:5:2")));
}

TEST_P(CudaCanonical, IsTheMathematicsOfTheCpu) {
  for (const char* more : {"sync-bn=true", "momentum=0.9"}) {
    SCOPED_TRACE(more);
    const Options options = with(kCanonical, kConvnet, more);
    const RankResult device = many(3, options)[0], cpu = train(3, with(options, kCpu))[0];
    EXPECT_LT(distance(cpu, device), 1e-4);
    EXPECT_LT(distance(cpu, device, kBuffers), 1e-4);
    expect_losses(cpu, device, 1e-4);
    EXPECT_EQ(cpu.averagings, device.averagings);
    EXPECT_EQ(cpu.bytes_sent, device.bytes_sent);
  }
}

// Within an epoch, in another world, on devices and on the CPU.
TEST_P(CudaCanonical, ResumesInAnotherWorldAndOnTheOtherKindOfDevice) {
  const Options options = with(kConvnet, "reduction-order=canonical momentum=0.9");
  const RankResult whole = one(with(options, "steps=7"));
  const auto continued = [&](const Options& first, const Options& second) {
    const TemporaryDirectory folder;
    const Options saved = with(options, "save-dir=" + folder.path().string());
    train(3, with(saved, first, "steps=3"));
    return train(2, with(saved, second, "steps=7 resume=auto"));
  };
  for (const RankResult& rank : continued(devices(3), devices(2))) {
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
    EXPECT_TRUE(same_bits(whole, rank, kBuffers));
  }
  EXPECT_LT(distance(whole, continued(devices(3), kCpu)[0]), 1e-4);
  EXPECT_LT(distance(whole, continued(kCpu, devices(2))[0]), 1e-4);
}

TEST_P(CudaCanonical, EveryStepLeavesEqualStatisticsOnAllRanks) {
  const auto ranks = many(3, with(kConvnet, "reduction-order=canonical steps=4 verify-every=1"));
  for (const RankResult& rank : ranks) {
    EXPECT_TRUE(rank.desyncs.empty());
    EXPECT_TRUE(same_bits(ranks[0], rank, kBuffers));
  }
}

// Ranks die, leave and join; the result has the bits of a run of one.
TEST_P(CudaCanonical, ChangingRanksLeaveNoTrace) {
  for (const char* statistics : {"sync-bn=false", "sync-bn=true"}) {
    SCOPED_TRACE(statistics);
    const Options options = with(kConvnet, "reduction-order=canonical batch-size=13 steps=9",
                                 "momentum=0.9", statistics);
    changing_ranks::Job job(with(options, devices(3)), 3);
    job.join(3);
    job.until_death(1, 2);
    job.until_death(0, 4);
    EXPECT_TRUE(job.until_pause(7));
    job.join(2);
    const RankResult whole = one(options);
    for (const RankResult& rank : job.to_the_end()) {
      EXPECT_EQ(rank.end.global_step, 9);
      EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
      EXPECT_TRUE(same_bits(whole, rank, kBuffers));
    }
  }
}

// Why it is needed: the plain order rounds differently for each world.
TEST_P(CudaCanonical, IsNotWhatTheFastOrderGives) {
  const Options fast = with(kCanonical, "reduction-order=fast clip-grad=0");
  EXPECT_FALSE(same_bits(one(fast), many(4, fast)[0], io::Section::kParameter));
}

TEST_P(CudaCanonical, ThePlanNamesWhereItTakesPlace) {
  EXPECT_CONTAINS(many(2, kCanonical)[0].coverage,
                  GetParam() ? "in canonical order, on the device" : "in canonical order");
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaCanonical, testing::Values(true, false),
                         [](const auto& p) { return p.param ? "OverNccl" : "Staged"; });

}  // namespace
