// Common to tests of a few ranks on CUDA devices: the devices, their options, and what they need.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/core/cuda.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace cuda_ranks {

inline constexpr int kRanks = 3, kMaxRanks = 4;

// Set before the devices are counted: a device for each rank of the emulated GPU.
[[maybe_unused]] inline const int kDevices =
    setenv("ENGINE_EMULATED_GPUS", std::to_string(kMaxRanks).c_str(), 0);

// A fiftieth of the parameters of the built-in mlp: an emulated device computes for long.
inline session_runner::Options small_mlp() {
  return "model=" + test_support::source_directory() + "/tests/training/small_mlp.toml ";
}

// Over NCCL each rank has its own device, and steps are captured.
inline session_runner::Options on_devices(int world, bool nccl) {
  if (!nccl) return "device=cuda";
  return {{"gpu-devices", "0-" + std::to_string(world - 1)}, {"backend", "nccl"}};
}

// Lets ranks share a device. Returns what is missing for such trainings, or "".
inline std::string missing(bool nccl, int ranks = kRanks) {
  setenv("ENGINE_ALLOW_SHARED_GPU", "1", 1);
  std::string what = engine::cuda::missing();
  if (what.empty() && nccl && engine::cuda::device_count() < ranks)
    what = "needs " + std::to_string(ranks) + " devices";
  return what;
}

inline void expect_equal_parameters(const std::vector<session_runner::RankResult>& ranks) {
  for (const session_runner::RankResult& rank : ranks)
    EXPECT_TRUE(session_runner::same_bits(ranks[0], rank, io::Section::kParameter));
}

// Two ranks train with `base` and `first` to step 3; then a resumption with `base` and `second`
// completes the run.
inline std::vector<session_runner::RankResult> train_in_two_runs(
    const session_runner::Options& base, const session_runner::Options& first,
    const session_runner::Options& second) {
  const test_support::TemporaryDirectory folder;
  const std::string directory = "save-dir=" + folder.path().string();
  session_runner::train(2, session_runner::with(base, first, "steps=3", directory));
  return session_runner::train(2, session_runner::with(base, second, directory, "resume=auto"));
}

}  // namespace cuda_ranks
