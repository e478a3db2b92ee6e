// Calls over Gloo never wait for a delayed acknowledgement, whatever sizes came before.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/transport/gloo/gloo_backend.h"
#include "tests/backends/transport/link_job.h"

namespace {

using Clock = std::chrono::steady_clock;

// Ranks, and the size of the first calls.
class GlooStalls : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

// The stall came in every call but the first ones, which are acknowledged at once. A load makes
// single calls slow, so that calls go on until each rank has seen a fast one.
TEST_P(GlooStalls, NoSizeWaitsForAcknowledgements) {
  constexpr auto kStall = std::chrono::milliseconds(40);
  constexpr int kFirstCalls = 16, kMaxCalls = 500;
  const auto [ranks, first] = GetParam();
  const auto world = static_cast<std::size_t>(ranks);
  link_job::Job job;
  std::vector<std::unique_ptr<backends::Communicator>> made(world);
  std::map<std::size_t, std::atomic<int>> satisfied;  // [KiB] ranks
  for (std::size_t kib = first; kib <= 256; kib *= 2) satisfied[kib] = 0;
  const auto errors = group_harness::outcomes(ranks, [&, ranks = ranks, first = first](int rank) {
    auto& communicator = made[static_cast<std::size_t>(rank)];
    communicator = backends::make_gloo_communicator(job.context(rank, ranks));
    std::vector<float> data((256 << 10) / sizeof(float));
    for (std::size_t kib = first; kib <= 256; kib *= 2) {
      bool is_satisfied = false;
      for (int call = 0; call < kMaxCalls; ++call) {
        communicator->barrier();
        // None counts between the barrier and a call in which all take part: all see the same.
        if (satisfied.at(kib) == ranks) break;
        const auto begin = Clock::now();
        communicator->all_reduce(data.data(), (kib << 10) / sizeof(float), base::DType::kF32,
                                 backends::ReduceOp::kSum);
        if (call < kFirstCalls || is_satisfied || Clock::now() - begin >= kStall) continue;
        is_satisfied = true;
        ++satisfied.at(kib);
      }
      EXPECT_TRUE(is_satisfied) << kib << " KiB, rank " << rank << " of " << ranks;
    }
    communicator->barrier();
  });
  EXPECT_EQ(errors, std::vector<std::string>(world));
}

INSTANTIATE_TEST_SUITE_P(Ranks, GlooStalls,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(32, 64, 128)));

}  // namespace
