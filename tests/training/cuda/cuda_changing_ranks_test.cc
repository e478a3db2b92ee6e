// Trainings on CUDA devices whose ranks change on the way: the state that is carried over is that
// of the last step that was done, whatever the device was doing when the group failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/core/cuda.h"
#include "tests/training/changing_ranks.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tools/launch/machine/device_choice.h"

namespace {

using namespace session_runner;
using changing_ranks::Job;
using cuda_ranks::kRanks;

// Its running statistics and the number of batches in them change in forward, before anything is
// certain.
const Options kConvnet =
    "model=convnet synthetic-shape=4x4x1 steps=9 device=cuda lr=0.05 momentum=0.9";
const Options kSyncBn = with(kConvnet, "batch-size=13 sync-bn=true");
const Options kAdamW = with(kConvnet, "optimizer=adamw momentum= lr=0.001 ema=0.9 clip-grad=0.5");
const Options kHalf = with(kConvnet, "amp=O2 loss-scale=dynamic");

// Over NCCL each rank has a device of its own and steps are captured; else gradients pass through
// host memory.
struct Case {
  const char* name;
  Options options;
  bool nccl = false;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.name) + (info.param.nccl ? "OverNccl" : "Staged");
}

class CudaChangingRanks : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(GetParam().nccl); !missing.empty())
      GTEST_SKIP() << missing;
  }
  void TearDown() override { unsetenv("NCCL_ON_CPU_FAULT"); }

  static Options options() {
    if (!GetParam().nccl) return GetParam().options;
    // Three buckets, so that a step may fail when some of them are summed.
    return with(GetParam().options, {{"device", ""},
                                     {"gpu-devices", "0-" + std::to_string(kRanks - 1)},
                                     {"backend", "nccl"},
                                     {"bucket-cap-mb", "0.02"}});
  }

  // Counters, and what does not depend on who computed which samples.
  static void expect_undisturbed(const std::vector<RankResult>& ranks) {
    const RankResult whole = train(kRanks, options())[0];
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
    for (const RankResult& rank : ranks) {
      EXPECT_EQ(rank.end.samples_seen, whole.end.samples_seen);
      EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
      if (options().contains("sync-bn")) {
        EXPECT_TRUE(same_bits(whole, rank, io::Section::kBuffer));
      }
      for (std::size_t i = 0; i < whole.state.size(); ++i)
        if (whole.state[i].type == base::DType::kI64) {
          EXPECT_EQ(rank.state.at(i).data, whole.state[i].data) << whole.state[i].name;
        }
    }
  }
};

// Whoever dies is replaced at once, so that every step is computed by as many ranks as ever.
TEST_P(CudaChangingRanks, EndWithTheBitsOfAnUndisturbedRun) {
  Job job(options(), kRanks);
  job.join(kRanks);
  job.until_death(0, 1);
  job.join(1);
  job.until_death(1, 5);
  job.join(1);
  EXPECT_TRUE(job.until_pause(7));
  expect_undisturbed(job.to_the_end());
}

TEST_P(CudaChangingRanks, GoOnWithFewerAndWithOne) {
  Job job(options(), kRanks);
  job.join(kRanks);
  job.until_death(1, 2);
  job.until_death(0, 4);
  EXPECT_TRUE(job.until_pause(7));  // captured by one
  job.join(2);
  const std::vector<RankResult> ranks = job.to_the_end();
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.global_step, 9);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
  if (!options().contains("sync-bn")) return;  // statistics are those of a rank's own samples
  EXPECT_LT(distance(train(1, with(options(), "backend="))[0], ranks[0]), 1e-3);
}

// One rank's part of the second of three sums does not come, in steps that are straight, that are
// about to be captured, and that were.
// What has been started ends everywhere with whatever there is.
TEST_P(CudaChangingRanks, ASumThatIsCutOffIsNoStep) {
  if (!GetParam().nccl) GTEST_SKIP() << "sums are the host's";
  if (engine::cuda::device_info(0).name.find("emulated") == std::string::npos)
    GTEST_SKIP() << "needs the emulated NCCL";
  for (const int call : {5, 8, 23}) {
    SCOPED_TRACE(call);
    Job job(options(), kRanks);
    job.join(kRanks);
    setenv("NCCL_ON_CPU_FAULT", ("async_error:" + std::to_string(call) + "@1").c_str(), 1);
    const std::vector<std::int64_t> steps = job.until_failure();
    unsetenv("NCCL_ON_CPU_FAULT");
    EXPECT_EQ(std::ranges::max(steps), (call - 1) / 3);
    EXPECT_LE(std::ranges::max(steps) - std::ranges::min(steps), 1);
    expect_undisturbed(job.to_the_end());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaChangingRanks,
                         testing::Values(Case{"Convnet", kConvnet}, Case{"Convnet", kConvnet, true},
                                         Case{"AdamW", kAdamW}, Case{"AdamW", kAdamW, true},
                                         Case{"SyncBn", kSyncBn}, Case{"SyncBn", kSyncBn, true},
                                         Case{"Half", kHalf, true}),
                         name_of);

}  // namespace
