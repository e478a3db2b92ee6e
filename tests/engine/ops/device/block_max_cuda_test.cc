// The maximum over a block, in every thread and with a NaN anywhere. This file is CUDA C++ where
// there is nvcc.
#include "engine/ops/device/block_max.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops::cuda {
namespace {

using namespace cuda_test;

constexpr int kBlockThreads = 96;

__global__ void write_block_max(const float* values, float* maxima) {
  auto& partial = block_shared<float[kBlockThreads / kWarp]>();
  maxima[threadIdx.x] = block_max(values[threadIdx.x], partial);
}

class BlockMaxCuda : public CudaTest {};

TEST_F(BlockMaxCuda, IsTheSameInEveryThreadAndNanIfAValueIs) {
  const auto maxima_of = [](const std::vector<float>& values) {
    const auto from = to_device<float>({kBlockThreads}, values),
               to = to_device<float>({kBlockThreads}, std::vector<float>(kBlockThreads));
    DeviceContext c;
    launch("write_block_max", write_block_max, {1}, kBlockThreads,
           sizeof(float[kBlockThreads / kWarp]), c.context.stream, from.view().as<float>(),
           to.view().as<float>());
    c.finish();
    return to.values();
  };
  for (const int place : {0, 1, 31, 32, 63, 64, 95}) {
    std::vector<float> values(kBlockThreads);
    for (int i = 0; i < kBlockThreads; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(-1 - i % 7);
    values[static_cast<std::size_t>(place)] = 3;
    EXPECT_EQ(maxima_of(values), std::vector<float>(kBlockThreads, 3)) << place;
    values[static_cast<std::size_t>(place)] = NAN;
    for (const float found : maxima_of(values)) ASSERT_TRUE(std::isnan(found)) << place;
  }
}

}  // namespace
}  // namespace engine::ops::cuda
