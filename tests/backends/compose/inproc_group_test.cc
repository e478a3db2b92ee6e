// Groups of threads: disagreement, and the choice of a backend.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "backends/backend_error.h"
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

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

// Memory that faults when it is read after its owner's call has ended.
class GuardedFloats {
 public:
  GuardedFloats() { EXPECT_NE(data_, MAP_FAILED); }
  ~GuardedFloats() { munmap(data_, kBytes); }
  float* data() { return static_cast<float*>(data_); }
  void forbid() { EXPECT_EQ(mprotect(data_, kBytes, PROT_NONE), 0); }
  static constexpr std::size_t kCount = 1 << 20, kBytes = kCount * sizeof(float);

 private:
  void* data_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
};

// The other ranks read it directly.
TEST(Inproc, AnAbortedCallEndsWhenNoRankUsesItsMemory) {
  for (int round = 0; round < 100; ++round) {
    const auto groups = backends::make_inproc_groups(2, test_support::deadline_ms(20'000));
    const std::array communicators{groups[0]->make_communicator(), groups[1]->make_communicator()};
    std::array<GuardedFloats, 2> data;
    std::atomic<int> started{0};
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        ++started;
        try {
          for (;;)
            communicators[rank]->all_reduce(data[rank].data(), GuardedFloats::kCount, DType::kF32,
                                            ReduceOp::kMax);
        } catch (const backends::PeerError&) {
          data[rank].forbid();
        }
      });
    while (started < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(37 * round));  // any moment of a call
    communicators[0]->abort("ends");
    for (std::thread& rank : ranks) rank.join();
  }
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
