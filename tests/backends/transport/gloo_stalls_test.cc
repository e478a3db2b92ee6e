// Calls over Gloo never wait for a delayed acknowledgement, whatever sizes came before.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
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

// A load makes single calls slow; the stall came in every one.
TEST_P(GlooStalls, NoSizeWaitsForAcknowledgements) {
  constexpr auto kStall = std::chrono::milliseconds(40);
  const auto [ranks, first] = GetParam();
  const auto world = static_cast<std::size_t>(ranks);
  link_job::Job job;
  std::vector<std::unique_ptr<backends::Communicator>> made(world);
  const auto errors = group_harness::outcomes(ranks, [&, ranks = ranks, first = first](int rank) {
    auto& communicator = made[static_cast<std::size_t>(rank)];
    communicator = backends::make_gloo_communicator(job.context(rank, ranks));
    std::vector<float> data((256 << 10) / sizeof(float));
    for (std::size_t kib = first; kib <= 256; kib *= 2) {
      auto fastest = Clock::duration::max();
      for (int call = 0; call < 24; ++call) {
        if (call == 16) fastest = Clock::duration::max();  // the first are acknowledged at once
        communicator->barrier();
        const auto begin = Clock::now();
        communicator->all_reduce(data.data(), (kib << 10) / sizeof(float), base::DType::kF32,
                                 backends::ReduceOp::kSum);
        fastest = std::min(fastest, Clock::now() - begin);
      }
      EXPECT_LT(fastest, kStall) << kib << " KiB, rank " << rank << " of " << ranks;
    }
    communicator->barrier();
  });
  EXPECT_EQ(errors, std::vector<std::string>(world));
}

INSTANTIATE_TEST_SUITE_P(Ranks, GlooStalls,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(32, 64, 128)));

}  // namespace
