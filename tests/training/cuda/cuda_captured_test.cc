// Steps of any shape that are captured as graphs have the bits of steps that are not:
// micro-batches, last steps of epochs, unequal shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/changing_ranks.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using cuda_ranks::kRanks;
using cuda_ranks::on_devices;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

// 60 samples in steps of 13: four of 13 samples and one of 8 in each of four epochs, so that both
// are captured. No number of ranks above one divides the 13.
const Options kUneven =
    "batch-size=13 epochs=4 lr=0.05 momentum=0.9 clip-grad=0.5 model=convnet "
    "synthetic-shape=4x4x1";

class CudaCaptured : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/true); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

void expect_straight_bits(int world, const Options& more) {
  const Options options = with(kUneven, on_devices(world, world > 1), more);
  const auto captured = train(world, options),
             straight = train(world, with(options, "cuda-graph=off"));
  for (std::size_t rank = 0; rank < captured.size(); ++rank)
    EXPECT_EQ(session_runner::difference(straight[rank].whole, captured[rank].whole), "") << rank;
  ASSERT_FALSE(captured[0].losses.empty());
  EXPECT_EQ(captured[0].losses, straight[0].losses);
}

TEST_F(CudaCaptured, AnyShapeHasTheBitsOfStraightSteps) {
  for (const int world : {1, 2, kRanks})
    for (const char* more : {"grad-accum=1", "grad-accum=2", "grad-accum=3"}) {
      SCOPED_TRACE(std::to_string(world) + " ranks, " + more);
      expect_straight_bits(world, more);
    }
}

TEST_F(CudaCaptured, HasTheSameBitsBesideOtherOptions) {
  for (const char* more :
       {"shares=3:1", "shares=3:1 grad-accum=2", "grad-accum=2 amp=bf16 shard-optimizer=true",
        "grad-accum=3 amp=O2 loss-scale=dynamic on-nonfinite=skip",
        "grad-accum=2 optimizer=adamw momentum= lr=0.001 ema=0.9 augment=flip"}) {
    SCOPED_TRACE(more);
    expect_straight_bits(2, more);
  }
}

// Two samples for three ranks: one of them has none.
TEST_F(CudaCaptured, ARankWithoutSamplesIsCapturedAsWell) {
  for (const char* more : {"grad-accum=1", "grad-accum=2"})
    expect_straight_bits(kRanks, with(more, "batch-size=2 synthetic-size=8"));
}

// Returns what a run says of captures before it starts.
std::string announced(int world, const Options& more) {
  return train(world, with(kUneven, on_devices(world, true), more, "epochs= steps=1"))[0].capture;
}

TEST_F(CudaCaptured, NothingStandsAgainstMicroBatchesAndUnequalShares) {
  for (const char* more :
       {"grad-accum=3", "shares=3:1", "shares=auto", "shares=auto sync-bn=true", "compress=bf16",
        "compress=topk sync-bn=true", "compress=powersgd sync-bn=true", "reduction-order=canonical",
        "reduction-order=canonical sync-bn=true",
        "reduction-order=canonical reduction-shards=16 grad-accum=8",
        "sync=params amp=O2 loss-scale=dynamic"}) {
    SCOPED_TRACE(more);
    EXPECT_EQ(announced(2, more), "captured from step 3 on");
  }
  EXPECT_VALUES(announced(2, "reduction-order=canonical reduction-shards=16 grad-accum=9"),
                "not captured: 72 64");
}

// One graph has all shards of a rank, and the sum of all ranks' nodes over NCCL: three ranks have
// unequal numbers of shards.
TEST_F(CudaCaptured, CanonicalOrderHasTheBitsOfStraightSteps) {
  for (const auto& [world, more] :
       {std::pair{1, "grad-accum=2"}, std::pair{2, "shares=3:1 amp=bf16 on-nonfinite=skip"},
        std::pair{1, "sync-bn=true"}, std::pair{2, "sync-bn=true grad-accum=2"},
        std::pair{kRanks, "sync-bn=true amp=bf16 synthetic-size=11 batch-size=4 epochs=4"},
        std::pair{kRanks, "amp=O2 loss-scale=dynamic shard-optimizer=true"},
        std::pair{kRanks, "grad-accum=3 synthetic-size=11 batch-size=4 epochs=4"}}) {
    SCOPED_TRACE(std::to_string(world) + " ranks, " + more);
    expect_straight_bits(world, with("reduction-order=canonical epochs=2", more));
  }
}

// Sums in host memory follow the graph of the shards.
TEST_F(CudaCaptured, ShardsAreCapturedWithoutNccl) {
  const Options options = with(kUneven, "device=cuda reduction-order=canonical epochs=2");
  const auto captured = train(2, options), straight = train(2, with(options, "cuda-graph=off"));
  EXPECT_EQ(captured[0].capture, "captured from step 3 on");
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(session_runner::difference(straight[rank].whole, captured[rank].whole), "") << rank;
  EXPECT_EQ(train(2, with(options, "sync-bn=true"))[0].capture,
            "not captured: batch statistics of the shards pass through host memory");
}

// A change of the shares changes the shapes; those in force again have their graphs.
TEST_F(CudaCaptured, SharesThatMoveHaveTheBitsOfStraightSteps) {
  const auto change = exact_support::measured(
      {{1, {300, 100}}, {5, {100, 900}}, {9, {300, 100}}, {14, {500, 500}}});
  for (const char* more : {"grad-accum=2", "sync-bn=true", "shard-optimizer=true"}) {
    SCOPED_TRACE(more);
    const Options options = with(kUneven, on_devices(2, true), "shares=auto", more);
    const auto captured = train(2, options, change),
               straight = train(2, with(options, "cuda-graph=off"), change);
    ASSERT_GE(captured[0].shares.size(), 3u) << "else nothing changed";
    EXPECT_EQ(captured[0].losses, straight[0].losses);
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(same_bits(straight[rank], captured[rank], io::Section::kParameter)) << rank;
  }
}

// Ranks agree on skipped steps between a graph and the update.
TEST_F(CudaCaptured, StepsThatAllRanksSkipHaveTheBitsOfStraightSteps) {
  const Options options = with(kUneven, on_devices(2, true),
                               "sync=params sync-every=3 amp=O2 loss-scale=dynamic shares=3:1");
  const auto captured = train(2, options), straight = train(2, with(options, "cuda-graph=off"));
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(session_runner::difference(straight[rank].whole, captured[rank].whole), "") << rank;
}

// On devices, on CPUs, and on devices again.
TEST_F(CudaCaptured, ContinuesOnCpusAndBack) {
  for (const char* more : {"reduction-order=canonical", "shares=auto"}) {
    SCOPED_TRACE(more);
    const Options cpus = with(kUneven, "device=cpu epochs=", more),
                  devices = with(kUneven, on_devices(2, true), "epochs=", more);
    const test_support::TemporaryDirectory folder;
    const Options saved = "resume=auto save-dir=" + folder.path().string();
    train(2, with(devices, saved, "steps=8"));
    train(2, with(cpus, saved, "steps=11"));
    const auto continued = train(2, with(devices, saved, "steps=19"));
    const RankResult whole = train(2, with(cpus, "steps=19"))[0];
    EXPECT_LT(session_runner::distance(whole, continued[0]), 1e-4);
    EXPECT_EQ(continued[0].end.global_step, 19);
  }
}

// Batch statistics of all ranks are exchanged by NCCL within the graphs.
class CudaSyncBn : public CudaCaptured {
 protected:
  void SetUp() override {
    CudaCaptured::SetUp();
    test_support::write_text(folder_ / "net.toml", R"(layer = [
  {kind = "conv2d", name = "conv1", out_channels = 5, padding = 1},
  {kind = "sync_batch_norm2d", name = "bn1"},
  {kind = "relu"},
  {kind = "conv2d", name = "conv2", out_channels = 7},
  {kind = "sync_batch_norm2d", name = "bn2"},
  {kind = "global_average_pool"},
  {kind = "dense", name = "fc", out = "classes"}]
)");
    options_ = with(kUneven, "model=" + (folder_ / "net.toml") + " clip-grad=");
  }
  const test_support::TemporaryDirectory folder_;
  Options options_;
};

TEST_F(CudaSyncBn, HasTheBitsOfStraightSteps) {
  for (const char* more : {"grad-accum=1", "grad-accum=2", "shares=3:1"}) {
    SCOPED_TRACE(more);
    expect_straight_bits(2, with(options_, more));
  }
  for (const char* more : {"grad-accum=1", "grad-accum=2"}) {  // a rank without samples
    SCOPED_TRACE(more);
    expect_straight_bits(kRanks, with(options_, more, "batch-size=2 synthetic-size=8"));
  }
}

TEST_F(CudaSyncBn, AgreesWithTheCpu) {
  for (const auto& [world, more] :
       {std::pair{2, "grad-accum=1"}, std::pair{2, "grad-accum=2 shares=3:1"},
        std::pair{kRanks, "batch-size=2 synthetic-size=8"}}) {
    SCOPED_TRACE(std::to_string(world) + " ranks, " + more);
    const Options options = with(options_, "epochs= steps=4 eval-every=4", more);
    const auto device = train(world, with(options, on_devices(world, true))),
               cpu = train(world, with(options, "device=cpu"));
    EXPECT_EQ(device[0].capture, "captured from step 3 on");
    EXPECT_LT(session_runner::loss_distance(cpu[0], device[0]), 1e-3);
    EXPECT_LT(session_runner::distance(cpu[0], device[0], io::Section::kBuffer), 1e-3);
    EXPECT_NEAR(device[0].last_eval.loss, cpu[0].last_eval.loss, 1e-3 * cpu[0].last_eval.loss);
    for (const RankResult& rank : device) {
      EXPECT_TRUE(same_bits(device[0], rank, io::Section::kParameter));
      EXPECT_TRUE(same_bits(device[0], rank, io::Section::kBuffer));
    }
  }
}

// Without NCCL the statistics pass through host memory.
TEST_F(CudaSyncBn, ThroughHostMemoryIsNotCaptured) {
  const Options options = with(options_, "epochs= steps=3");
  const auto host = train(2, with(options, "device=cuda"));
  const auto nccl = train(2, with(options, on_devices(2, true)));
  EXPECT_CONTAINS(host[0].capture, "not captured: ");
  EXPECT_TRUE(same_bits(host[0], nccl[0], io::Section::kBuffer));
  EXPECT_LT(session_runner::distance(host[0], nccl[0]), 1e-6);
}

// Returns rank 0's gradients as they are fetched after each step.
std::vector<std::vector<float>> fetched_gradients(int world, const Options& options) {
  std::vector<std::vector<float>> steps;
  train(world, options, [&](int rank, engine::TrainState& state) {
    state.home.fetch_gradients();
    const auto all = state.model.parameters.gradients.span<float>();
    if (rank == 0) steps.emplace_back(all.begin(), all.end());
  });
  return steps;
}

void expect_gradients_near(const std::vector<std::vector<float>>& expected,
                           const std::vector<std::vector<float>>& found, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    ASSERT_EQ(found[step].size(), expected[step].size());
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < expected[step].size(); ++i) {
      const auto e = static_cast<double>(expected[step][i]);
      most = std::max(most, std::fabs(e - static_cast<double>(found[step][i])));
      largest = std::max(largest, std::fabs(e));
    }
    ASSERT_GT(largest, 0) << step;
    EXPECT_LE(most, tolerance * largest) << step;
  }
}

// Histograms show them: after the sum over ranks, before clipping, without the loss scale.
TEST_F(CudaCaptured, FetchedGradientsAreThoseOfTheCpu) {
  const Options options = with(kUneven, "clip-grad=0.01");
  for (const auto& [world, nccl, more, tolerance] :
       {std::tuple{1, false, "grad-accum=2", 1e-4}, std::tuple{2, true, "shares=3:1", 1e-4},
        std::tuple{2, false, "grad-accum=1", 1e-4}, std::tuple{2, true, "loss-scale=512", 2e-2}}) {
    SCOPED_TRACE(std::to_string(world) + " ranks, " + more);
    const Options scaled = tolerance > 1e-3 ? Options("amp=O2 epochs= steps=4") : Options("");
    const auto cpu = fetched_gradients(
        world, with(options, more, "loss-scale= device=cpu", with(scaled, "amp=")));
    expect_gradients_near(
        cpu, fetched_gradients(world, with(options, more, on_devices(world, nccl), scaled)),
        tolerance);
  }
}

// An aborted sum within a graph of the last micro-batch is no step.
TEST_F(CudaCaptured, GoesOnWithMicroBatchesWhenRanksLeaveAndJoin) {
  const Options options =
      with(kUneven, on_devices(kRanks, true), "grad-accum=2 epochs= steps=12 batch-size=12");
  changing_ranks::Job job(options, kRanks);
  job.join(kRanks);
  job.until_death(1, 7);
  job.join(1);
  EXPECT_TRUE(job.until_pause(9));
  const std::vector<RankResult> ranks = job.to_the_end();
  const RankResult whole = train(kRanks, options)[0];
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.global_step, 12);
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
  }
}

}  // namespace
