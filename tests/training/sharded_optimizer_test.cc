// --shard-optimizer: the same training as without it, bit for bit, with a share of the optimizer's
// memory on each rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"
#include "tests/training/sharded_training.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::refusal;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::train;
using session_runner::with;
using sharded_training::expect_same;
using sharded_training::find_checkpoint;
using sharded_training::kSharded;
using sharded_training::SmallModel;
using test_support::TemporaryDirectory;

// Uneven batches, and buckets of which some can be cut into equal slices and the last cannot.
const Options kSmallBuckets = "batch-size=13 bucket-cap-mb=0.3 epochs=1";

// What all trainings have, and the small model for muon.
Options options_of(const SmallModel& small, const std::string& optimizer) {
  if (optimizer == "muon") return with(kSmallBuckets, small.options());
  return with(kSmallBuckets, "optimizer=" + optimizer);
}

struct ShardedCase {
  const char* name;
  const char* optimizer;
  Options options;
};
void PrintTo(const ShardedCase& c, std::ostream* out) { *out << c.name; }  // for the test library

class ShardedOptimizer : public testing::TestWithParam<ShardedCase> {
 protected:
  Options options() const {
    return with(options_of(small_, GetParam().optimizer), GetParam().options);
  }

 private:
  const SmallModel small_;
};

TEST_P(ShardedOptimizer, IsTheSameBits) {
  for (int world = 1; world <= 4; ++world) expect_same(world, options());
}

TEST_P(ShardedOptimizer, IsTheSameBitsInFloat64) { expect_same(3, with(options(), "dtype=f64")); }

TEST_P(ShardedOptimizer, IsTheSameBitsInCanonicalOrder) {
  expect_same(3, with(options(), "reduction-order=canonical bucket-cap-mb="));
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ShardedOptimizer,
    testing::Values(ShardedCase{"Sgd", "sgd", "momentum=0"},
                    ShardedCase{"SgdWithMomentum", "sgd", "momentum=0.9 weight-decay=0.01"},
                    ShardedCase{"Adamw", "adamw", "clip-grad=0.5"}, ShardedCase{"Lion", "lion", {}},
                    ShardedCase{"Muon", "muon", "clip-grad=0.5"}),
    [](const auto& p) { return p.param.name; });

const Options kAdamw = with(kSmallBuckets, "optimizer=adamw");

TEST(ShardedOptimizerBeside, WhatElseATrainingMayHave) {
  for (const Options& more : {Options("ema=0.9 eval-every=1"), Options("freeze=layers.0.*"),
                              Options("lr-group=layers.1.*=3x"), Options("delay-allreduce=true"),
                              Options("compress=bf16"), Options("on-nonfinite=skip"),
                              Options("verify-every=1"), Options("save-async=true save-every=2s"),
                              Options("model=convnet synthetic-shape=8x8x1 sync-bn=true")}) {
    SCOPED_TRACE(more.begin()->first);
    expect_same(2, with(kAdamw, more));
  }
}

// Numbers overflow after a few steps, in the gradients of some of the blocks first.
TEST(ShardedOptimizerBeside, AStepThatIsSkippedIsSkippedOnAllRanks) {
  const Options options = with(kSmallBuckets, "epochs=2 momentum=0.9 lr=1e6 on-nonfinite=skip");
  const std::vector<RankResult> whole = train(3, options),
                                shared = train(3, with(options, kSharded));
  expect_in_sync(shared);
  EXPECT_TRUE(same_bits(whole[0], shared[0], io::Section::kParameter));
  const auto skipped = [](const RankResult& rank) {
    return rank.reports.back().skipped_steps.value();
  };
  EXPECT_GT(skipped(whole[0]), 0);
  EXPECT_LT(skipped(whole[0]), std::ssize(whole[0].reports));
  for (const RankResult& rank : shared) EXPECT_EQ(skipped(rank), skipped(whole[0]));
  expect_same(2, options);
}

// A checkpoint is resumed by any number of ranks, with the option or without.
TEST(ShardedOptimizerCheckpoint, IsResumedWithAndWithoutTheOption) {
  const SmallModel small;
  for (const char* optimizer : {"adamw", "muon"}) {
    const Options options = options_of(small, optimizer);
    const TemporaryDirectory whole, shared;
    train(3, with(options, "save-dir=" + whole.path().string()));
    train(3, with(options, kSharded, "save-dir=" + shared.path().string()));
    const auto goes_on = [&](int world, const TemporaryDirectory& from, const Options& more) {
      return find_checkpoint(world, with(options, more, "epochs=2 resume=" + from.path().string()));
    };
    for (const int world : {1, 2, 4}) {
      const io::Checkpoint expected = goes_on(world, whole, {});
      EXPECT_EQ(session_runner::difference(expected, goes_on(world, shared, {})), "") << world;
      EXPECT_EQ(session_runner::difference(expected, goes_on(world, whole, kSharded)), "") << world;
      EXPECT_EQ(session_runner::difference(expected, goes_on(world, shared, kSharded)), "")
          << world;
    }
  }
}

// Bytes of the optimizer's states, of each rank.
std::vector<std::size_t> state_bytes(int world, const Options& options) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(world));
  train(world, options, [&](int rank, engine::TrainState& state) {
    std::size_t& own = bytes[static_cast<std::size_t>(rank)];
    own = 0;
    for (const engine::Optimizer::State& s : state.optimizer.state()) own += s.buffer->bytes();
  });
  return bytes;
}

TEST(ShardedOptimizerMemory, IsAShareOfTheStates) {
  for (const char* optimizer : {"sgd", "adamw", "lion"}) {
    const Options options =
        with(kSmallBuckets, std::string("optimizer=") + optimizer + " batch-size=12");
    const std::size_t whole = state_bytes(1, options)[0];
    for (int world = 2; world <= 4; ++world) {
      const std::vector<std::size_t> shares = state_bytes(world, with(options, kSharded));
      std::size_t all = 0;
      for (const std::size_t share : shares) {
        all += share;
        const double fair = static_cast<double>(whole) / world;
        EXPECT_NEAR(static_cast<double>(share), fair, 0.1 * fair) << optimizer << ", " << world;
      }
      EXPECT_EQ(all, whole) << optimizer << ", " << world;
    }
  }
}

TEST(ShardedOptimizerMemory, OfMuonIsEachTensorOnOneRank) {
  const SmallModel small;
  const Options options = with(options_of(small, "muon"), "batch-size=12");
  const std::size_t whole = state_bytes(1, options)[0];
  const std::vector<std::size_t> shares = state_bytes(2, with(options, kSharded));
  EXPECT_EQ(shares[0] + shares[1], whole);
  // Matrices have one state and other tensors two, so even shares of the parameters are not quite
  // even shares of the states.
  EXPECT_LT(static_cast<double>(std::max(shares[0], shares[1])), 0.7 * static_cast<double>(whole));
}

TEST(ShardedOptimizerRefusals, SayWhatIsNeeded) {
  for (const char* sync : {"params", "post-local", "slowmo", "diloco", "none"})
    EXPECT_CONTAINS(refusal(1, with(kSharded, std::string("sync=") + sync)), "--sync grad");
  EXPECT_CONTAINS(refusal(1, with(kSharded, "elastic=1:2")), "without --elastic");
}

}  // namespace
