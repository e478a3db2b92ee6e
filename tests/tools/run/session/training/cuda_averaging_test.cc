// Averagings of parameters on CUDA devices: over NCCL on the devices, otherwise in host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tests/tools/run/session/training/changing_ranks.h"
#include "tests/tools/run/session/training/cuda_ranks.h"
#include "tests/tools/run/session/training/session_runner.h"

namespace {

using cuda_ranks::kRanks;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

// Thirteen samples: the ranks' shares are unequal.
const Options kMlp = "batch-size=13 steps=7 lr=0.05 momentum=0.9 weight-decay=0.001 sync-every=2";
const Options kStaged = cuda_ranks::on_devices(kRanks, /*nccl=*/false);

Options over_nccl(int world) { return cuda_ranks::on_devices(world, /*nccl=*/true); }

class CudaAveraging : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/true); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

void expect_alike(const std::vector<RankResult>& ranks) {
  for (const RankResult& rank : ranks)
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
}

// Everything that a checkpoint contains is equal, also the outer state and the counters.
void expect_same_state(int world, const Options& options, double from_cpu = 1e-5) {
  const auto nccl = train(world, with(options, over_nccl(world))),
             staged = train(world, with(options, kStaged));
  expect_alike(nccl);
  for (std::size_t rank = 0; rank < nccl.size(); ++rank)
    EXPECT_EQ(session_runner::difference(staged[rank].whole, nccl[rank].whole), "") << rank;
  EXPECT_EQ(nccl[0].averagings, staged[0].averagings);
  EXPECT_EQ(nccl[0].bytes_sent, staged[0].bytes_sent);
  EXPECT_EQ(nccl[0].spreads, staged[0].spreads);
  EXPECT_FALSE(nccl[0].spreads.empty());
  EXPECT_LT(distance(train(world, with(options, "device=cpu"))[0], nccl[0]), from_cpu);
}

const Options kPolicies[] = {
    "sync=params",
    "sync=params average-state=all",
    "sync=params average-state=momentum:2",
    "sync=diloco",
    "sync=diloco outer-lr=0.7 outer-momentum=0.9 average-state=all",
    "sync=slowmo",
    "sync=post-local sync-warmup=2",
    "sync=diloco sync-warmup=2",
};

TEST_F(CudaAveraging, HasTheBitsOfAveragingInHostMemory) {
  for (const Options& policy : kPolicies)
    for (const int world : {2, 3}) {
      SCOPED_TRACE(policy.at("sync") + " on " + std::to_string(world));
      expect_same_state(world, with(kMlp, policy));
    }
}

TEST_F(CudaAveraging, HasTheSameBitsBesideOtherOptions) {
  for (const Options& more : {Options("model=convnet synthetic-shape=8x8x1 average-buffers=true"),
                              Options("freeze=layers.0.*"), Options("local-steps=3:2"),
                              Options("eval-every=3"), Options("verify-every=2")}) {
    SCOPED_TRACE(more.begin()->first + "=" + more.begin()->second);
    expect_same_state(2, with(kMlp, "sync=diloco", more));
  }
  // AdamW divides by the size of gradients, so that the rounding of small ones is visible.
  expect_same_state(
      2, with(kMlp, "sync=diloco optimizer=adamw lr=0.001 momentum= average-state=all"), 1e-4);
}

// The kernels read short copies of the weights, which follow each averaging.
TEST_F(CudaAveraging, HasTheSameBitsInShortTypes) {
  for (const char* precision : {"amp=bf16", "amp=O2 loss-scale=dynamic"}) {
    SCOPED_TRACE(precision);
    const Options options = with(kMlp, "sync=diloco", precision);
    const auto nccl = train(2, with(options, over_nccl(2))),
               staged = train(2, with(options, kStaged));
    expect_alike(nccl);
    EXPECT_EQ(session_runner::difference(staged[0].whole, nccl[0].whole), "");
  }
}

// Two samples for three ranks: one of them has none, and no weight.
TEST_F(CudaAveraging, ARankWithoutSamplesFollows) {
  for (const char* sync : {"sync=params", "sync=diloco"})
    expect_same_state(kRanks, with(kMlp, "batch-size=2 synthetic-size=20", sync));
}

// A mark in the mirror is there as long as nothing is copied to it.
bool mirror_stays(const Options& options) {
  std::vector<char> kept(2, 1);
  train(2, options, [&kept](int rank, engine::TrainState& state) {
    float& mirrored = state.model.parameters.values.span<float>()[0];
    constexpr float kMark = 12345;
    if (state.progress.global_step >= 3 && mirrored != kMark)
      kept[static_cast<std::size_t>(rank)] = 0;
    mirrored = kMark;
  });
  return kept == std::vector<char>{1, 1};
}

TEST_F(CudaAveraging, LeavesTheMirrorAloneOverNccl) {
  const Options quiet = with(kMlp, "log-every=0 eval-every=0");
  for (const Options& policy : {kPolicies[0], kPolicies[1], kPolicies[3], kPolicies[5]}) {
    SCOPED_TRACE(policy.at("sync"));
    EXPECT_TRUE(mirror_stays(with(quiet, policy, over_nccl(2))));
    EXPECT_FALSE(mirror_stays(with(quiet, policy, kStaged)));
  }
  EXPECT_FALSE(mirror_stays(with(quiet, "sync=diloco compress=int8", over_nccl(2))));
}

TEST_F(CudaAveraging, ThePlanNamesWhereItTakesPlace) {
  const auto names = [](const Options& options, const std::string& line) {
    const std::vector<std::string> plan = train(2, with(kMlp, options))[0].plan;
    return std::ranges::find(plan, line) != plan.end();
  };
  const std::string devices = "averagings on the devices, over NCCL",
                    host = "averagings in host memory: devices copy their state to and from it";
  EXPECT_TRUE(names(with("sync=params", over_nccl(2)), devices));
  EXPECT_TRUE(names(with("sync=streaming", over_nccl(2)), host));
  EXPECT_TRUE(names(with("sync=params compress=int8", over_nccl(2)), host));
  EXPECT_TRUE(names(with("sync=params", kStaged), host));
  EXPECT_FALSE(names("sync=params device=cpu", host));
}

// A stop within a period averages first, as every save does.
TEST_F(CudaAveraging, ResumesOnTheOtherKindOfDevice) {
  const Options cpu = "device=cpu";
  for (const Options& policy : {kPolicies[1], kPolicies[4]}) {
    SCOPED_TRACE(policy.at("sync"));
    const Options base = with(kMlp, policy, "save-every=3s");
    const auto continued = [&](const Options& first, const Options& second) {
      const TemporaryDirectory folder;
      const std::string directory = "save-dir=" + folder.path().string();
      train(2, with(base, first, "steps=3", directory));
      return train(2, with(base, second, directory, "resume=auto"));
    };
    const TemporaryDirectory saved;
    const auto saving = train(2, with(base, over_nccl(2), "save-dir=" + saved.path().string()))[0];
    const auto same = continued(over_nccl(2), over_nccl(2));
    EXPECT_EQ(session_runner::difference(saving.whole, same[0].whole), "");
    EXPECT_LT(distance(saving, continued(over_nccl(2), cpu)[0]), 1e-4);
    EXPECT_LT(distance(saving, continued(cpu, over_nccl(2))[0]), 1e-4);
  }
}

TEST_F(CudaAveraging, GoesOnWhenRanksLeaveAndJoin) {
  for (const Options& policy : {kPolicies[1], kPolicies[4]}) {
    SCOPED_TRACE(policy.at("sync"));
    changing_ranks::Job job(with(kMlp, policy, over_nccl(kRanks), "steps=12"), kRanks);
    job.join(kRanks);
    job.until_death(1, 3);
    EXPECT_TRUE(job.until_pause(7));
    job.join(1);
    const std::vector<RankResult> ranks = job.to_the_end();
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
    for (const RankResult& rank : ranks) EXPECT_EQ(rank.end.global_step, 12);
    expect_alike(ranks);
  }
}

}  // namespace
