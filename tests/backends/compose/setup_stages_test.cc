// The set-up of a group after its rendezvous: its time limit, and the ranks that it waits for.
#include "backends/compose/setup_stages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "backends/identity/join.h"
#include "backends/transport/inproc/inproc_store.h"
#include "tests/backends/group_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using backends::PeerInfo;
using backends::SetupStage;
using backends::SetupStages;

const std::vector<PeerInfo> kPeers = {{0, "a", 10, "a"}, {1, "b", 11, "b"}, {2, "c", 12, "c"}};

// Returns the error of rank 0 for a wait that ends without success, with this limit of time.
std::string error_of_rank_0(backends::Store& store, std::chrono::milliseconds limit) {
  SetupStages stages(store, kPeers, 0, limit);
  try {
    stages.run(SetupStage::kConnecting, []() -> int { throw backends::PeerError("no answer"); });
  } catch (const backends::PeerError& error) {
    return error.what();
  }
  return "";
}

TEST(SetupStagesOfRanks, TheOnesThatHaveNotComeAsFarAreNamed) {
  backends::InprocStore store;
  SetupStages first(store, kPeers, 1, {}), second(store, kPeers, 2, {});
  first.enter(SetupStage::kConnecting);
  second.enter(SetupStage::kEncryption);
  EXPECT_EQ(error_of_rank_0(store, {}),
            "no answer; waiting for rank 2 (host c, pid 12), which has not reached the set-up of "
            "connections within 0.0 s (--rdzv-timeout)");
  second.enter(SetupStage::kConnecting);
  EXPECT_EQ(error_of_rank_0(store, {}), "no answer");
}

TEST(SetupStagesOfRanks, AnErrorBeforeTheEndOfTheTimeIsNoneOfOthers) {
  backends::InprocStore store;
  EXPECT_EQ(error_of_rank_0(store, std::chrono::hours(1)), "no answer");
}

// Its process lives, and sends heartbeats.
TEST(SetupStagesOfRanks, ARankThatStopsAfterTheRendezvousIsWaitedForUntilRdzvTimeout) {
  const group_harness::Listener listener = group_harness::open_listener();
  std::atomic<bool> has_ended{false};
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
    if (rank == 1) {
      const backends::JoinedStore joined = backends::join_store(o);
      EXPECT_TRUE(test_support::eventually([&] { return has_ended.load(); }));
      return;
    }
    o.listen.fd = listener.fd;
    o.timeout_ms = 600'000;
    o.rendezvous_timeout_ms =
        static_cast<int>(test_support::deadline(std::chrono::seconds(1)).count());
    try {
      (void)backends::join_group(o);
    } catch (...) {
      has_ended = true;
      throw;
    }
  });
  EXPECT_CONTAINS(errors[0], "waiting for rank 1 (host ");
  EXPECT_CONTAINS(errors[0], "), which has not reached the choice of encryption within ");
  EXPECT_CONTAINS(errors[0], " s (--rdzv-timeout)");
}

}  // namespace
