// Groups of threads: disagreement, and the choice of a backend.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/backend_error.h"
#include "tests/backends/group_harness.h"

namespace {

using backends::ReduceOp;
using base::DType;

TEST(Mismatch, DifferentCollectivesAreNamedOnEveryThread) {
  const auto groups = backends::make_inproc_groups(2, 5000);
  std::vector<float> data[2] = {std::vector<float>(8, 1.f), std::vector<float>(8, 2.f)};
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    const auto c = groups[static_cast<std::size_t>(rank)]->make_communicator();
    c->all_reduce(data[rank].data(), rank == 0 ? 8 : 7, DType::kF32, ReduceOp::kSum);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.rfind("mismatch: ", 0), 0u) << error;
    EXPECT_NE(
        error.find("rank 0 calls all_reduce sum of 8 f32, rank 1 calls all_reduce sum of 7 f32"),
        std::string::npos)
        << error;
  }
  EXPECT_EQ(data[0], std::vector<float>(8, 1.f)) << "no payload may be touched";
}

TEST(Backends, ChoiceIsSaidAndErrorsName) {
  backends::GroupOptions alone;
  EXPECT_EQ(backends::join_group(alone)->backend(), "single");
  alone.backend = "carrier-pigeon";
  EXPECT_THROW(backends::join_group(alone), backends::ConfigurationError);
  backends::GroupOptions threads = group_harness::options_for(0, 2, 1);
  threads.backend = "inproc";
  EXPECT_THROW(backends::join_group(threads), backends::ConfigurationError);
}

// Never taken by `auto`, never part of what works on host memory, and where it cannot run one line
// says what is missing.
TEST(Backends, NcclIsForGpusOnly) {
  const auto list = backends::list_backends();
  const auto nccl = std::find_if(list.begin(), list.end(),
                                 [](const backends::BackendInfo& b) { return b.name == "nccl"; });
  ASSERT_NE(nccl, list.end());
  EXPECT_TRUE(nccl->device_memory);
  EXPECT_FALSE(nccl->note.empty());
  backends::GroupOptions o = group_harness::options_for(0, 2, 1);
  for (const char* backend : {"nccl", "checked:shm,nccl"}) {
    o.backend = backend;
    o.rendezvous_timeout_ms = 200;
    try {
      backends::join_group(o);
      ADD_FAILURE();
    } catch (const backends::ConfigurationError& error) {
      EXPECT_NE(std::string(error.what()).find("backend nccl"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(nccl->note), std::string::npos) << error.what();
    } catch (const backends::PeerError&) {
      EXPECT_TRUE(nccl->usable) << "must be refused before the ranks meet";
    }
  }
}

}  // namespace
