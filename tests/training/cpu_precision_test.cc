// Whole trainings with --amp bf16 on the CPU: near those in f32, the same bits where f32 has them,
// resumed in the middle, beside other options.
#include <gtest/gtest.h>

#include "engine/ops/common/bf16_dispatch.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::distance;
using session_runner::loss_distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

class CpuPrecision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

const Options kRoundedMlp = "steps=6 lr=0.05 momentum=0.9 weight-decay=1e-3 device=cpu amp=bf16";
const Options kRoundedConvnet =
    "model=convnet synthetic-shape=28x28x1 batch-size=5 steps=3 lr=0.05 "
    "device=cpu amp=bf16";
// Convolutions by Winograd's method, with steps of two pixels and of one pixel.
const Options kRoundedResnet =
    "model=resnet18-cifar synthetic-shape=16x16x3 batch-size=4 steps=2 lr=0.01 "
    "device=cpu amp=bf16";

Options in_f32(const Options& options) { return with(options, "amp="); }

bool equal_ends(const RankResult& a, const RankResult& b) {
  return same_bits(a, b, io::Section::kParameter) && same_bits(a, b, io::Section::kBuffer);
}

TEST_F(CpuPrecision, StaysNearF32) {
  for (const Options& options :
       {kRoundedMlp, kRoundedConvnet, kRoundedResnet, with(kRoundedConvnet, "conv=direct"),
        with(kRoundedMlp, "optimizer=adamw lr=0.002 momentum= clip-grad=1"),
        with(kRoundedMlp, "synthetic-size=30 grad-accum=3")}) {
    const auto rounded = train(1, options), plain = train(1, in_f32(options));
    EXPECT_LT(loss_distance(plain[0], rounded[0]), 3e-2);
    EXPECT_GT(loss_distance(plain[0], rounded[0]), 1e-7);
    EXPECT_LT(distance(plain[0], rounded[0]), 0.3);
  }
}

TEST_F(CpuPrecision, LearnsWhatF32Learns) {
  const Options options = with(kRoundedConvnet, "steps=40 synthetic-size=24 batch-size=12 lr=0.02");
  const auto rounded = train(1, options), plain = train(1, in_f32(options));
  const std::vector<double>&losses = rounded[0].losses, &expected = plain[0].losses;
  ASSERT_EQ(losses.size(), 40u);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_NEAR(losses.back(), expected.back(), 0.1 * expected.front());
}

// Parameters, their gradients and the optimizer's state are f32 all the way.
TEST_F(CpuPrecision, ResumesBitForBit) {
  const test_support::TemporaryDirectory folder;
  const Options saved = with(kRoundedConvnet, std::string("save-dir=") + folder / "a");
  const auto whole = train(1, kRoundedConvnet);
  train(1, with(saved, "steps=2"));
  const auto resumed = train(1, with(saved, "resume=auto"));
  EXPECT_TRUE(equal_ends(whole[0], resumed[0]));
}

TEST_F(CpuPrecision, DeterministicRunsDoNotDependOnThreads) {
  for (const Options& options : {kRoundedMlp, kRoundedConvnet, kRoundedResnet}) {
    const Options steady = with(options, "deterministic=true");
    const auto one = train(1, steady);
    for (const char* threads : {"2", "3"})
      EXPECT_TRUE(equal_ends(one[0], train(1, with(steady, std::string("threads=") + threads))[0]))
          << threads;
  }
}

TEST_F(CpuPrecision, CanonicalOrderHasTheSameBitsInAnyWorld) {
  const Options canonical =
      with(kRoundedMlp, "reduction-order=canonical reduction-shards=4 batch-size=11");
  const auto one = train(1, with(canonical, "threads=2"));
  for (const int world : {2, 4}) {
    const auto many = train(world, canonical);
    EXPECT_TRUE(equal_ends(one[0], many[0])) << world;
    EXPECT_EQ(one[0].losses, many[0].losses) << world;
  }
}

TEST_F(CpuPrecision, ReplicasStayEqual) {
  const auto two = train(2, with(kRoundedConvnet, "sync-bn=true shard-optimizer=true"));
  EXPECT_TRUE(equal_ends(two[0], two[1]));
  EXPECT_LT(loss_distance(train(1, kRoundedConvnet)[0], two[0]), 3e-2);
}

}  // namespace
