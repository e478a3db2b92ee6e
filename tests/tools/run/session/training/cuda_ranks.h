// Common to tests of a few ranks on CUDA devices: the devices, their options, and what they need.
#pragma once

#include <cstdlib>
#include <string>

#include "engine/core/cuda.h"
#include "tests/support/test_support.h"
#include "tests/tools/run/session/training/session_runner.h"

namespace cuda_ranks {

inline constexpr int kRanks = 3, kMaxRanks = 4;

// Set before the devices are counted: a device for each rank of the emulated GPU.
[[maybe_unused]] inline const int kDevices =
    setenv("ENGINE_EMULATED_GPUS", std::to_string(kMaxRanks).c_str(), 0);

// A fiftieth of the parameters of the built-in mlp: an emulated device computes for long.
inline session_runner::Options small_mlp() {
  return "model=" + test_support::source_directory() +
         "/tests/tools/run/session/training/small_mlp.toml ";
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

}  // namespace cuda_ranks
