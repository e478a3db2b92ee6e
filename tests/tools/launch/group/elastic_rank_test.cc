// The groups that the ranks of an elastic job are in, one after the other, without training.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"
#include "tools/launch/group/run_group.h"

namespace tools {
namespace {

RunConfig two_ranks() {
  RunConfig config;
  config.group.backend = "auto";
  config.group.local_stage = backends::LocalStage::kAuto;
  config.spawn = 2;
  config.min_ranks = 1;
  config.data.max_ranks = 2;
  config.compute.threads = 1;
  config.group.heartbeat_ms = 300;
  config.group.timeout_ms = config.group.rendezvous_timeout_ms = test_support::deadline_ms(20'000);
  return config;
}

void run_barrier(backends::Group& group) { group.make_communicator()->barrier(); }

TEST(ElasticRank, AJobThatTakesStepsMayLoseItsConnectionsAsOftenAsTheyBreak) {
  constexpr std::uint64_t kGroups = 9;
  const int code = run_elastic(two_ranks(),
                               [](backends::Group& group, const backends::View& view,
                                  const std::function<bool()>& pause) -> std::optional<int> {
                                 run_barrier(group);
                                 if (view.generation >= kGroups) return 0;
                                 pause();
                                 throw backends::PeerError("a link that is down again and again");
                               });
  EXPECT_EQ(code, 0);
}

// The first rank is stopped until the other one has gone on; then it finds its folder taken.
TEST(ElasticRank, WhoFindsItsFolderTakenWasLeftOutAndComesBack) {
  const int code = run_elastic(two_ranks(),
                               [](backends::Group& group, const backends::View& view,
                                  const std::function<bool()>& pause) -> std::optional<int> {
                                 if (view.generation == 1) {
                                   run_barrier(group);
                                   pause();
                                   if (view.rank == 0) {
                                     raise(SIGSTOP);
                                     throw io::CannotCreateError("taken");
                                   }
                                   for (;;) run_barrier(group);  // rank 0 is silent
                                 }
                                 if (view.world_size == 2) {
                                   run_barrier(group);
                                   return 0;
                                 }
                                 pause();
                                 for (const backends::PeerInfo& stopped : view.left)
                                   kill(stopped.pid, SIGCONT);
                                 if (!test_support::eventually([&] { return pause(); })) return 1;
                                 return std::nullopt;
                               });
  EXPECT_EQ(code, 0);
}

// Cut off in the moment in which all say farewell: the others have gone, and it knows nothing of
// it.
TEST(ElasticRank, WhoMissesTheEndOfAFinishedJobHasFinishedToo) {
  testing::internal::CaptureStderr();
  const int code = run_elastic(two_ranks(),
                               [](backends::Group& group, const backends::View& view,
                                  const std::function<bool()>&) -> std::optional<int> {
                                 run_barrier(group);
                                 if (view.rank == 0) return 0;
                                 group.leave([] { return false; });
                                 throw backends::PeerError("the last answer did not come");
                               });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 0);
  EXPECT_VALUES(said, "engine: job ended:");
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

}  // namespace
}  // namespace tools
