// The thread sanitizer, told which threads of a block are ordered by what, finds the barrier that a
// kernel lacks. Compiled in builds with it only (-DENGINE_SANITIZE=thread).
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/ops/device/async_copy.h"

namespace engine::ops::cuda {
namespace {

constexpr int kRaceThreads = 128, kRounds = 4;
constexpr int kRaceFound = 66;  // the sanitizer's exit code

enum class Missing { kNothing, kFirst, kSecond, kAtCopy, kOfWarp };

// Each round every thread writes its number and reads that of a thread of another warp: a barrier
// between the two, and one before the next round.
template <Missing kMissing>
__global__ void pass_on(int* to) {
  int* shared = &block_shared<int>();
  const int self = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    shared[self] = self + round;
    if (kMissing != Missing::kFirst) __syncthreads();
    sum += shared[(self + kWarp) % kRaceThreads];
    if (kMissing != Missing::kSecond) __syncthreads();
  }
  to[self] = sum;
}

// The same with an asynchronous copy, which may arrive as soon as it is asked for.
template <Missing kMissing>
__global__ void copy_on(const int* from, int* to) {
  int* shared = &block_shared<int>();
  const int self = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    copy_async_4(shared + self, from + self);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    sum += shared[(self + kWarp) % kRaceThreads];
    if (kMissing != Missing::kAtCopy) __syncthreads();
  }
  to[self] = sum;
}

// Within a warp, its own barrier is enough.
template <Missing kMissing>
__global__ void pass_on_in_warp(int* to) {
  int* shared = &block_shared<int>();
  const int self = static_cast<int>(threadIdx.x);
  shared[self] = self;
  if (kMissing != Missing::kOfWarp) __syncwarp();
  to[self] = shared[self ^ 1];
}

// Runs the kernel and ends the process as one that ends well does.
template <class... Parameters, class... Arguments>
[[noreturn]] void run_alone(void (*kernel)(Parameters...), Arguments... arguments) {
  const engine::cuda::Stream stream;
  launch("kernel", kernel, Grid{3, 1, 1}, kRaceThreads, kRaceThreads * sizeof(int), stream.handle(),
         arguments...);
  stream.synchronize();
  std::exit(0);
}
int* make_ints() { return static_cast<int*>(engine::cuda::allocate(kRaceThreads * sizeof(int))); }

class RaceDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(RaceDeathTest, BarriersAreEnough) {
  EXPECT_EXIT(run_alone(pass_on<Missing::kNothing>, make_ints()), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_alone(copy_on<Missing::kNothing>, make_ints(), make_ints()),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_alone(pass_on_in_warp<Missing::kNothing>, make_ints()),
              testing::ExitedWithCode(0), "");
}

TEST_F(RaceDeathTest, AMissingBarrierIsFound) {
  EXPECT_EXIT(run_alone(pass_on<Missing::kFirst>, make_ints()), testing::ExitedWithCode(kRaceFound),
              "data race");
  EXPECT_EXIT(run_alone(pass_on<Missing::kSecond>, make_ints()),
              testing::ExitedWithCode(kRaceFound), "data race");
}

TEST_F(RaceDeathTest, ACopyThatMayArriveTooEarlyIsFound) {
  EXPECT_EXIT(run_alone(copy_on<Missing::kAtCopy>, make_ints(), make_ints()),
              testing::ExitedWithCode(kRaceFound), "data race");
}

TEST_F(RaceDeathTest, AMissingBarrierOfAWarpIsFound) {
  EXPECT_EXIT(run_alone(pass_on_in_warp<Missing::kOfWarp>, make_ints()),
              testing::ExitedWithCode(kRaceFound), "data race");
}

}  // namespace
}  // namespace engine::ops::cuda
