// --shares auto and --local-steps auto on CUDA devices: a rank's work is measured without its waits
// for other ranks, and what changes by it changes nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/cuda.h"
#include "engine/train/balance/share_balance.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::expect_losses;
using exact_support::measured;
using session_runner::distance;
using session_runner::Options;
using session_runner::train;
using session_runner::with;

class CudaBalance : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    // cuda_sharded_optimizer_test.cc sets their number where they are emulated.
    if (GetParam() && engine::cuda::device_count() < 2) GTEST_SKIP() << "needs 2 devices";
    setenv("ENGINE_ALLOW_SHARED_GPU", "1", 1);
  }
  static Options devices() {
    if (!GetParam()) return "device=cuda";
    return "gpu-devices=0-1 backend=nccl";
  }
};

TEST_P(CudaBalance, SharesChangeWithoutAnEffect) {
  const Options options = with("batch-size=13 epochs=2 lr=0.05 momentum=0.9", devices());
  const auto equal = train(2, options);
  // 60 samples in steps of 13: five steps an epoch.
  const auto change = measured({{1, {300, 100}}, {3, {100, 900}}, {6, {500, 500}}});
  for (const Options& more : {Options{}, Options("grad-accum=3"), Options("shard-optimizer=true"),
                              Options("cuda-graph=off")}) {
    const auto two = train(2, with(options, "shares=auto", more), change);
    EXPECT_LT(distance(equal[0], two[0]), 1e-5);
    expect_losses(equal[0], two[0], 1e-5);
    expect_in_sync(two);
    ASSERT_GE(two[0].shares.size(), 2u) << "else nothing changed";
    EXPECT_GT(two[0].shares[0].samples[0], two[0].shares[0].samples[1]);
    EXPECT_LT(two[0].shares[1].samples[0], two[0].shares[1].samples[1]);
  }
}

TEST_P(CudaBalance, LocalStepsFollowTheMeasuredSpeeds) {
  const Options options = with("batch-size=12 sync=params sync-every=4 steps=8 lr=0.05", devices());
  const auto cpu = train(
      2,
      with(options,
           {{"local-steps", "auto"}, {"device", "cpu"}, {"gpu-devices", ""}, {"backend", ""}}),
      measured({{2, {300, 100}}}));
  const auto cuda = train(2, with(options, "local-steps=auto"), measured({{2, {300, 100}}}));
  expect_in_sync(cuda);
  EXPECT_EQ(cuda[1].whole.counters, cpu[1].whole.counters);
  ASSERT_EQ(cuda[0].shares.size(), 1u);
  EXPECT_NEAR(cuda[0].shares[0].local_steps.at(1), 0.5, 0.01);
  EXPECT_LT(distance(cpu[0], cuda[0]), 1e-5);
}

constexpr double kPause = 0.3;
constexpr int kSteps = 12;  // from the fifth on launched as graphs

// Sums a rank's work in each step, and keeps the shares as they are: large equal measurements hide
// the ranks' own.
struct OwnWork {
  double before = 0, total = 0;

  void add_step(engine::ShareBalance& balance) {
    const double measured = balance.measured().seconds;
    total += measured < before ? measured : measured - before;
    balance.add_step({1e6, 1e6});
    before = balance.measured().seconds;
  }
};

// Rank 0 pauses between steps; rank 1 waits for it in each sum, and otherwise has as much work.
void expect_own_work_is_measured(const Options& devices, const Options& more) {
  std::array<OwnWork, 2> own;
  const auto pause = [&own](int rank, engine::TrainState& state) {
    for (engine::Stateful* part : state.parts)
      if (auto* balance = dynamic_cast<engine::ShareBalance*>(part))
        own[static_cast<std::size_t>(rank)].add_step(*balance);
    if (rank == 0) std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
  };
  const Options options =
      with("model=convnet synthetic-shape=4x4x1 batch-size=12 synthetic-size=600 log-every=0",
           devices, "steps=" + std::to_string(kSteps));
  const auto ranks = train(2, with(options, "shares=auto", more), pause);
  EXPECT_TRUE(ranks[0].shares.empty());
  EXPECT_GT(own[1].total, 0) << "nothing was measured";
  EXPECT_LT(own[1].total - own[0].total, 0.3 * kPause * (kSteps - 1)) << own[1].total;
}

TEST_P(CudaBalance, WaitingForOtherRanksIsNotMeasured) {
  for (const char* more :
       {"cuda-graph=auto", "cuda-graph=off", "sync-bn=true", "sync-bn=true cuda-graph=off"}) {
    SCOPED_TRACE(more);
    expect_own_work_is_measured(devices(), more);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaBalance, testing::Values(true, false),
                         [](const auto& p) { return p.param ? "OverNccl" : "Staged"; });

}  // namespace
