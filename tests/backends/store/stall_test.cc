// Ranks that live but do not get on: who is said to wait for whom.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/store/protocol/stall_detector.h"
#include "backends/store/tcp_socket.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::RankProgress;
using backends::StallDetector;
using test_support::eventually;

struct Ranks {
  std::vector<RankProgress> progress;
  std::vector<std::string> activity;
  explicit Ranks(std::size_t count) : progress(count), activity(count) {}
  std::vector<StallDetector::Member> members() const {
    std::vector<StallDetector::Member> all;
    for (std::size_t r = 0; r < progress.size(); ++r)
      all.push_back({static_cast<int>(r), progress[r], activity[r]});
    return all;
  }
};

TEST(StallDetector, NamesWhoWaitsAndWhoIsElsewhere) {
  StallDetector watch(10s);
  Ranks ranks(4);
  for (const std::size_t r : {0u, 2u, 3u}) ranks.progress[r] = {9'999, "all_reduce", ""};
  ranks.activity[1] = "step 12, loading";
  EXPECT_FALSE(watch.check(ranks.members()));
  ranks.progress[2].waiting_ms = 12'345;
  const auto stall = watch.check(ranks.members());
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->text,
            "no progress for 12.3 s: rank 0, 2, 3 in all_reduce; rank 1 in no collective "
            "(step 12, loading)");
  EXPECT_EQ(stall->culprit, 1);
  EXPECT_EQ(stall->concerned, (std::set<int>{1, 2}));
}

TEST(StallDetector, RanksInDifferentCollectivesWaitForTheMinority) {
  StallDetector watch(10s);
  Ranks ranks(3);
  ranks.progress = {
      {11'000, "all_reduce", ""}, {11'000, "all_gather", ""}, {11'000, "all_reduce", ""}};
  const auto stall = watch.check(ranks.members());
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->text, "no progress for 11.0 s: rank 0, 2 in all_reduce; rank 1 in all_gather");
  EXPECT_EQ(stall->culprit, 1);
}

TEST(StallDetector, WhereAllAreInTheSameCallTheLinksAreNamed) {
  StallDetector watch(10s);
  Ranks ranks(2);
  ranks.progress = {{10'000, "barrier", ""}, {10'000, "barrier", ""}};
  EXPECT_EQ(watch.check(ranks.members()).value().text,
            "no progress for 10.0 s: rank 0, 1 in barrier, and no data arrives");
  ranks.progress[1] = {20'000, "barrier", "nothing received from rank 0 for 19.0 s"};
  const StallDetector::Stall stall = watch.check(ranks.members()).value();
  EXPECT_EQ(stall.concerned, (std::set<int>{0, 1}));
  EXPECT_EQ(stall.text,
            "no progress for 20.0 s: rank 0, 1 in barrier; rank 1 has nothing received from rank 0 "
            "for 19.0 s");
}

TEST(StallDetector, IsSilentUntilTheTimeHasDoubledAndSpeaksOfTheNextStallAnew) {
  StallDetector watch(10s);
  Ranks ranks(2);
  const auto said = [&](std::int64_t ms) {
    ranks.progress[0] = {ms, ms > 0 ? "barrier" : "", ""};
    return watch.check(ranks.members()).has_value();
  };
  EXPECT_TRUE(said(10'000));
  for (const std::int64_t ms : {11'000, 15'000, 19'999}) EXPECT_FALSE(said(ms)) << ms;
  EXPECT_TRUE(said(20'000));
  EXPECT_FALSE(said(39'999));
  EXPECT_TRUE(said(40'000));
  EXPECT_FALSE(said(0));
  EXPECT_TRUE(said(10'000));
}

TEST(StallDetector, IsOffAtZero) {
  StallDetector watch(0s);
  Ranks ranks(2);
  ranks.progress[0] = {1'000'000, "barrier", ""};
  EXPECT_FALSE(watch.check(ranks.members()));
}

TEST(SilentLink, SaysHowMuchIsNotAcknowledged) {
  const backends::Socket listener = backends::listen_on({"127.0.0.1", 0});
  const backends::Socket client =
      group_harness::connect_to_port(backends::local_endpoint(listener.fd()).port);
  backends::Socket server;
  ASSERT_TRUE(eventually([&] {
    server = backends::Socket(accept(listener.fd(), nullptr, nullptr));
    return static_cast<bool>(server);
  }));
  const backends::CallWait quiet = backends::silent_link(client.fd(), client.fd(), "rank 1");
  EXPECT_EQ(quiet.text, "");
  EXPECT_FALSE(quiet.unacknowledged);
  const std::string data(1 << 20, 'x');
  while (send(client.fd(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  EXPECT_TRUE(eventually([&] {
    const auto [text, unacknowledged] = backends::silent_link(client.fd(), client.fd(), "rank 1");
    return text.find("nothing received from rank 1 for ") == 0 &&
           text.find(" bytes to rank 1 not acknowledged") != std::string::npos && unacknowledged;
  }));
}

class Stall : public testing::TestWithParam<std::string> {
 protected:
  // A group of three, of which rank 1 comes to the collective when it is let. Returns each
  // rank's error.
  std::vector<std::string> run(bool abort) {
    const group_harness::Listener listener = group_harness::open_listener();
    return group_harness::outcomes(3, [&](int rank) {
      backends::GroupOptions o = group_harness::options_for(rank, 3, listener.port);
      group_harness::choose_backend(o, GetParam());
      if (rank == 0) o.listen.fd = listener.fd;
      o.heartbeat_ms = 200;
      o.stall.after_ms = 1000;
      o.stall.abort = abort;
      o.notice = [this, rank](const std::string& line) {
        const std::lock_guard lock(mutex_);
        notices_[static_cast<std::size_t>(rank)] += line + "\n";
      };
      const auto group = backends::join_group(o);
      const auto communicator = group->make_communicator();
      communicator->barrier();
      if (rank == 1) {
        group->set_activity("elsewhere");
        EXPECT_TRUE(eventually([&] {
          if (abort) group->check();  // throws when the group has ended
          return let_.load();
        }));
      }
      float value = 1;
      communicator->all_reduce(&value, 1, base::DType::kF32, backends::ReduceOp::kSum);
      EXPECT_EQ(value, 3);
      group->leave();
    });
  }
  std::string said_by(int rank) {
    const std::lock_guard lock(mutex_);
    return notices_[static_cast<std::size_t>(rank)];
  }

  std::atomic<bool> let_{false};

 private:
  std::mutex mutex_;
  std::vector<std::string> notices_ = std::vector<std::string>(3);
};

TEST_P(Stall, IsSaidByRank0AndTheRankConcernedAndTheCallGoesOn) {
  std::thread teller([&] {
    // Rank 2 may still be late when rank 0 reports for the first time.
    EXPECT_TRUE(eventually([&] {
      return said_by(0).find("rank 0, 2 in all_reduce") != std::string::npos &&
             said_by(1).find("rank 0, 2 in all_reduce") != std::string::npos;
    }));
    let_ = true;
  });
  EXPECT_EQ(run(false), std::vector<std::string>(3));
  teller.join();
  for (const int rank : {0, 1}) {
    EXPECT_CONTAINS(said_by(rank), "rank 0, 2 in all_reduce sum of 1 f32 (collective 2 of");
    EXPECT_CONTAINS(said_by(rank), "; rank 1 in no collective (elsewhere)");
  }
}

TEST_P(Stall, EndsTheGroupWhereThatIsAskedFor) {
  for (const std::string& error : run(true)) {
    EXPECT_CONTAINS(error, "stalled, ended as --stall-abort asks: no progress for ");
    EXPECT_CONTAINS(error, "rank 1 in no collective (elsewhere)");
  }
}

std::vector<std::string> stalled_backends() {
  std::vector<std::string> names;
  for (const std::string& name : group_harness::backend_names()) {
    if (name == "socket" || name == "shm" || name == "gloo" || name == "zmq") names.push_back(name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, Stall, testing::ValuesIn(stalled_backends()),
                         [](const auto& test) { return test.param; });

}  // namespace
