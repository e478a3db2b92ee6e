// --shard-optimizer on CUDA devices: the bits of the same run without it, over NCCL and through
// host memory, with a share of the optimizer's memory on each device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/core/cuda.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/test_support.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"
#include "tests/training/sharded_training.h"

namespace {

using cuda_ranks::on_devices;
using exact_support::expect_in_sync;
using session_runner::Options;
using session_runner::train;
using session_runner::with;
using sharded_training::expect_same;
using sharded_training::find_checkpoint;
using sharded_training::kSharded;
using sharded_training::SmallModel;
using test_support::TemporaryDirectory;

// Uneven batches, and buckets of which some are cut into equal slices and the last is not.
const Options kSmallBuckets = "batch-size=13 bucket-cap-mb=0.3 steps=5 lr=0.002";

class CudaShardedOptimizer : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(GetParam()); !missing.empty())
      GTEST_SKIP() << missing;
  }
  static Options options(int world, const Options& more) {
    return with(kSmallBuckets, on_devices(world, GetParam()), more);
  }
};

TEST_P(CudaShardedOptimizer, IsTheSameBits) {
  for (const int world : {1, 2, 3}) {
    if (world == 1 && GetParam()) continue;
    expect_same(world, options(world, "optimizer=adamw clip-grad=0.5"));
  }
  for (const Options& more : {Options("momentum=0.9 weight-decay=0.01"), Options("optimizer=lion"),
                              Options("momentum=0.9 cuda-graph=off grad-accum=2")}) {
    SCOPED_TRACE(more.begin()->first);
    expect_same(2, options(2, more));
  }
}

TEST_P(CudaShardedOptimizer, OfMuonIsTheSameBits) {
  const SmallModel small;
  for (const int world : {2, 3})
    expect_same(world, options(world, with(small.options(), "clip-grad=0.5 lr=0.02")));
}

// Every rank makes the short copies of all weights from what it gathered.
TEST_P(CudaShardedOptimizer, IsTheSameBitsInEveryPrecision) {
  for (const char* precision : {"amp=bf16", "amp=O2 loss-scale=dynamic", "amp=O1"}) {
    SCOPED_TRACE(precision);
    expect_same(2, options(2, with("optimizer=adamw model=convnet synthetic-shape=8x8x1 steps=4",
                                   precision)));
  }
}

TEST_P(CudaShardedOptimizer, IsTheSameBitsBesideOtherOptions) {
  const Options adamw = "optimizer=adamw steps=4";
  for (const Options& more :
       {Options("ema=0.9 eval-every=2"), Options("freeze=layers.0.* amp=bf16"),
        Options("lr-group=layers.1.*=3x"), Options("compress=bf16"), Options("on-nonfinite=skip"),
        Options("verify-every=1"), Options("save-async=true save-every=2s"),
        Options("model=convnet synthetic-shape=8x8x1 sync-bn=true")}) {
    if (GetParam() && more.contains("compress")) continue;  // never over NCCL
    SCOPED_TRACE(more.begin()->first);
    expect_same(2, options(2, with(adamw, more)));
  }
}

// After a few steps numbers overflow; all ranks skip these steps.
TEST_P(CudaShardedOptimizer, ASkippedStepIsSkippedOnAllRanks) {
  const Options skipping =
      options(2, "steps=6 momentum=0.9 lr=1e6 on-nonfinite=skip optimizer=sgd");
  const auto ranks = train(2, with(skipping, kSharded));
  expect_in_sync(ranks);
  EXPECT_GT(ranks[0].reports.back().skipped_steps.value(), 0);
  EXPECT_LT(ranks[0].reports.back().skipped_steps.value(), 6);
  expect_same(2, skipping);
}

// Checkpoints are whole: they continue on the other kind of device, for any number of ranks.
TEST_P(CudaShardedOptimizer, ResumesOnTheOtherKindOfDevice) {
  const SmallModel small;
  const Options cpu = with(kSmallBuckets, "device=cpu");
  for (const Options& optimizer : {Options("optimizer=adamw"), small.options()}) {
    const TemporaryDirectory whole, shared, host;
    train(3, with(options(3, optimizer), "steps=3 save-dir=" + whole.path().string()));
    train(3, with(options(3, optimizer), kSharded, "steps=3 save-dir=" + shared.path().string()));
    train(2, with(cpu, optimizer, kSharded, "steps=3 save-dir=" + host.path().string()));
    const auto goes_on = [&](int world, const Options& from, const TemporaryDirectory& folder) {
      return find_checkpoint(world, with(from, optimizer, "resume=" + folder.path().string()));
    };
    const auto expect_resumed = [&](int world, const Options& on) {
      const io::Checkpoint expected = goes_on(world, on, whole);
      for (const Options& more : {Options{}, kSharded})
        EXPECT_EQ(session_runner::difference(expected, goes_on(world, with(on, more), shared)), "")
            << world;
      EXPECT_EQ(session_runner::difference(goes_on(world, on, host),
                                           goes_on(world, with(on, kSharded), host)),
                "")
          << world;
    };
    expect_resumed(2, cpu);
    expect_resumed(2, options(2, {}));
    expect_resumed(3, options(3, {}));
  }
}

// The bytes of the optimizer's states on each rank: the device has as much as its mirror.
std::vector<std::size_t> state_bytes(int world, const Options& options) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(world));
  train(world, options, [&](int rank, engine::TrainState& state) {
    std::size_t& own = bytes[static_cast<std::size_t>(rank)];
    own = 0;
    for (const engine::Optimizer::State& s : state.optimizer.state()) own += s.buffer->bytes();
  });
  return bytes;
}

TEST_P(CudaShardedOptimizer, EachDeviceHasAShareOfTheStates) {
  const Options adamw = "optimizer=adamw steps=1";
  const std::size_t whole = state_bytes(2, options(2, adamw))[0];
  for (const int world : {2, 3}) {
    const std::vector<std::size_t> shares =
        state_bytes(world, with(options(world, adamw), kSharded));
    std::size_t all = 0;
    for (const std::size_t share : shares) {
      all += share;
      const double fair = static_cast<double>(whole) / world;
      EXPECT_NEAR(static_cast<double>(share), fair, 0.1 * fair) << world;
    }
    EXPECT_EQ(all, whole) << world;
  }
}

// Over NCCL no other rank allocates on the device.
TEST(CudaShardedOptimizerMemory, IsFreeOnTheDevice) {
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  if (engine::cuda::device_count() < 2) GTEST_SKIP() << "needs 2 devices";
  std::vector<std::size_t> held(2);
  const auto measure = [&held](int rank, engine::TrainState&) {
    const auto [free, total] = engine::cuda::free_and_total_memory();
    held[static_cast<std::size_t>(rank)] = total - free;
  };
  const Options adamw = with(on_devices(2, true), "optimizer=adamw steps=1");
  const std::size_t whole = state_bytes(1, "optimizer=adamw steps=1 device=cuda")[0];
  train(2, adamw, measure);
  const std::vector<std::size_t> before = held;
  train(2, with(adamw, kSharded), measure);
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    EXPECT_NEAR(static_cast<double>(before[rank]) - static_cast<double>(held[rank]),
                static_cast<double>(whole) / 2, 0.05 * static_cast<double>(whole));
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaShardedOptimizer, testing::Values(true, false),
                         [](const auto& p) { return p.param ? "OverNccl" : "Staged"; });

}  // namespace
