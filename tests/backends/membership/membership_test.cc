// Elastic membership between threads and processes of one host, and of made-up hosts: founding,
// joining, deaths, partitions, and what is refused.
#include "backends/membership/membership.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "backends/membership/acceptor_file.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/io_error.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/membership/elastic_ranks.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::Membership;
using backends::MembershipOptions;
using elastic_ranks::options_for;
using elastic_ranks::ProcessRank;
using elastic_ranks::Seen;
using elastic_ranks::ThreadRank;
using test_support::eventually;
using test_support::free_port;

using Threads = std::vector<std::unique_ptr<ThreadRank>>;

Threads start_threads(int count, int min_ranks, int max_ranks, int port) {
  Threads ranks;
  for (int r = 0; r < count; ++r)
    ranks.push_back(std::make_unique<ThreadRank>(options_for(r, min_ranks, max_ranks, port)));
  return ranks;
}

// Whether all have seen a view of so many members, in the same generation.
template <class Ranks>
bool all_see(Ranks& ranks, int world_size) {
  std::optional<std::uint64_t> generation;
  return std::ranges::all_of(ranks, [&](auto& rank) {
    const std::optional<Seen> seen = rank->seen();
    if (!seen || seen->world_size != world_size) return false;
    if (!generation) generation = seen->generation;
    return *generation == seen->generation;
  });
}

bool endpoint_is_held(int port) {
  std::string reason;
  return static_cast<bool>(backends::connect_to(
      {"127.0.0.1", port}, base::deadline_in(test_support::deadline(5s)), reason));
}

class Founding : public testing::TestWithParam<int> {};

TEST_P(Founding, AllAreInTheFirstViewInTheOrderOfTheirHints) {
  const int world_size = GetParam();
  Threads ranks = start_threads(world_size, world_size, world_size, free_port());
  ASSERT_TRUE(eventually([&] { return all_see(ranks, world_size); }));
  for (int r = 0; r < world_size; ++r) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->seen()->rank, r);
    EXPECT_TRUE(ranks[static_cast<std::size_t>(r)]->seen()->is_new_member);
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->seen()->generation, 1u);
  }
  std::vector<std::thread> leaving;
  for (auto& rank : ranks) leaving.emplace_back([&rank] { rank->leave(); });
  for (std::thread& t : leaving) t.join();
  for (auto& rank : ranks) EXPECT_EQ(rank->error(), "");
}

INSTANTIATE_TEST_SUITE_P(Membership, Founding, testing::Range(1, 5));

TEST(MembershipTest, ANewcomerIsTakenInWhileTheJobRuns) {
  const int port = free_port();
  Threads ranks = start_threads(2, 2, 4, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks.push_back(std::make_unique<ThreadRank>(options_for(-1, 2, 4, port)));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 3); }));
  EXPECT_FALSE(ranks[0]->seen()->is_new_member);
  EXPECT_EQ(ranks[0]->seen()->joined, 1);
  EXPECT_TRUE(ranks[2]->seen()->is_new_member);
  EXPECT_EQ(ranks[2]->seen()->rank, 2);
}

TEST(MembershipTest, TheDeathOfAnyLeavesTheOthers) {
  const int port = free_port();
  Threads ranks = start_threads(4, 1, 4, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 4); }));
  for (const int victim : {1, 0, 1}) {  // by what is left: in the middle, the first, the last
    ranks[static_cast<std::size_t>(victim)]->crash();
    ranks.erase(ranks.begin() + victim);
    const int left = static_cast<int>(ranks.size());
    ASSERT_TRUE(eventually([&] { return all_see(ranks, left); }));
    for (int r = 0; r < left; ++r) {
      EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->seen()->rank, r);
      EXPECT_FALSE(ranks[static_cast<std::size_t>(r)]->seen()->is_new_member);
      EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->seen()->left, 1);
    }
  }
}

TEST(MembershipTest, TheJoinEndpointIsTakenOver) {
  const int port = free_port();
  Threads ranks = start_threads(2, 1, 4, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks[0]->crash();  // whichever rank serves the endpoint, one of the other two is next
  ranks.erase(ranks.begin());
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 1); }));
  ranks.push_back(std::make_unique<ThreadRank>(options_for(-1, 1, 4, port)));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks[0]->crash();
  ranks.erase(ranks.begin());
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 1); }));
  ranks.push_back(std::make_unique<ThreadRank>(options_for(-1, 1, 4, port)));
  EXPECT_TRUE(eventually([&] { return all_see(ranks, 2); }));
}

MembershipOptions named_job(int hint, int port) {
  MembershipOptions options = options_for(hint, 1, 4, port);
  options.group.job.id = "a name";
  options.group.listen.port_window = 16;
  return options;
}

// A neighbor took the port: it says nothing, or greets like some other server.
TEST(MembershipTest, APortThatIsTakenBeforeTheStartIsPassedBy) {
  for (const bool speaks : {true, false}) {
    const int port = free_port();
    const backends::Socket neighbor = backends::listen_on({"127.0.0.1", port});
    std::atomic<bool> ends{false};
    std::thread greets([&] {
      std::vector<backends::Socket> kept;
      while (!ends) {
        pollfd wanted{neighbor.fd(), POLLIN, 0};
        if (poll(&wanted, 1, 20) <= 0) continue;
        kept.emplace_back(accept4(neighbor.fd(), nullptr, nullptr, SOCK_CLOEXEC));
        const std::string text = "220 mail.example.org ESMTP\r\n";
        if (speaks) static_cast<void>(!write(kept.back().fd(), text.data(), text.size()));
      }
    });
    Threads ranks;
    for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<ThreadRank>(named_job(r, port)));
    EXPECT_TRUE(eventually([&] { return all_see(ranks, 2); })) << speaks;
    ranks.push_back(std::make_unique<ThreadRank>(named_job(-1, port)));
    EXPECT_TRUE(eventually([&] { return all_see(ranks, 3); })) << speaks;
    ends = true;
    greets.join();
  }
}

TEST(MembershipTest, APortThatIsTakenAfterItsOwnersDeathIsPassedBy) {
  const int port = free_port();
  Threads ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<ThreadRank>(named_job(r, port)));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  backends::Socket neighbor;
  for (int tries = 0; !neighbor && !ranks.empty() && tries < 2; ++tries) {  // one of them has it
    try {
      neighbor = backends::listen_on({"127.0.0.1", port}, 0ms);
    } catch (const backends::PeerError&) {
      if (ranks.size() == 1) break;
      ranks[0]->crash();
      ranks.erase(ranks.begin());
    }
  }
  ranks.push_back(std::make_unique<ThreadRank>(named_job(-1, port)));
  EXPECT_TRUE(eventually([&] { return all_see(ranks, static_cast<int>(ranks.size())); }));
}

TEST(MembershipTest, TheFounderDiesBeforeTheFirstView) {
  const int port = free_port();
  Threads ranks;
  ranks.push_back(std::make_unique<ThreadRank>(options_for(0, 2, 2, port)));
  ASSERT_TRUE(eventually([&] { return endpoint_is_held(port); }));
  ranks[0]->crash();
  ranks[0] = std::make_unique<ThreadRank>(options_for(1, 2, 2, port));
  ranks.push_back(std::make_unique<ThreadRank>(options_for(2, 2, 2, port)));
  EXPECT_TRUE(eventually([&] { return all_see(ranks, 2); }));
}

TEST(MembershipTest, AJobWhoseProcessesAreAllDeadIsFoundedAnew) {
  const int port = free_port();
  Threads ranks = start_threads(2, 2, 2, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks.clear();
  MembershipOptions restarted = options_for(0, 2, 2, port);
  restarted.group.restarted = true;
  restarted.group.rendezvous_timeout_ms = 1000;
  ThreadRank respawned(restarted);
  ASSERT_TRUE(eventually([&] { return !respawned.error().empty(); }));
  // Why depends on others: any job that starts on this host removes what dead ones have left.
  EXPECT_VALUES(respawned.error(), "no group of ranks");
  ranks = start_threads(2, 2, 2, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  EXPECT_TRUE(ranks[0]->seen()->is_new_member);
  EXPECT_TRUE(ranks[1]->seen()->is_new_member);
}

// A member may still do without it; a process that comes would wait in vain.
TEST(MembershipTest, AnAcceptorThatStaysUnusableEndsTheWaitAtOnce) {
  const MembershipOptions options = options_for(0, 1, 1, free_port());
  backends::AcceptorFile present(backends::acceptor_job(options.group));
  for (std::uint64_t round = 1; round <= 2; ++round)
    ASSERT_TRUE(present.update([&](backends::AcceptorState& state) {
      state.promised = backends::Ballot{round, {1, 1}};
    }));
  for (const std::streamoff copy : {4096, 4096 + (32 << 20)})
    std::fstream(present.path(), std::ios::in | std::ios::out).seekp(copy + 30) << "damage";
  Membership membership(options);
  try {
    static_cast<void>(membership.first_view());
    ADD_FAILURE() << "founded";
  } catch (const io::CannotCreateError& error) {
    EXPECT_CONTAINS(error.what(),
                    "the acceptor file " + present.path() + " of this host is damaged");
  }
  std::filesystem::remove(present.path());
}

TEST(MembershipTest, TooFewIsSaidAtTheTimeout) {
  MembershipOptions options = options_for(0, 2, 3, free_port());
  options.group.rendezvous_timeout_ms = 700;
  ThreadRank alone(options);
  ASSERT_TRUE(eventually([&] { return !alone.error().empty(); }));
  EXPECT_VALUES(alone.error(), "no group ranks: 1 2");
}

TEST(MembershipTest, WaitingCanBeCancelled) {
  ThreadRank alone(options_for(0, 2, 3, free_port()));
  test_support::pause(200ms);
  alone.crash();
  EXPECT_CONTAINS(alone.error(), "stopped while waiting");
}

TEST(MembershipTest, AnotherSecretIsRefused) {
  const int port = free_port();
  Threads ranks = start_threads(2, 2, 4, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  MembershipOptions options = options_for(2, 2, 4, port);
  options.group.job.secret = std::string(64, 'a');
  Membership other(options);
  EXPECT_THROW(other.first_view(), backends::AuthenticationError);
}

TEST(MembershipTest, OtherSettingsAreRefusedAndNamed) {
  const int port = free_port();
  MembershipOptions options = options_for(0, 1, 1, port);
  options.group.job.settings = {{"--batch-size", "128"}};
  options.max_ranks = 4;
  ThreadRank first(options);
  ASSERT_TRUE(eventually([&] { return first.seen().has_value(); }));
  options.group.job.settings = {{"--batch-size", "64"}};
  Membership other(options);
  try {
    other.first_view();
    FAIL() << "was taken in";
  } catch (const backends::MismatchError& error) {
    EXPECT_CONTAINS(error.what(), "--batch-size");
    EXPECT_CONTAINS(error.what(), "128");
    EXPECT_CONTAINS(error.what(), "64");
  }
}

TEST(MembershipTest, OfTwoHostsTheFirstMembersGoesOnAndTheOtherWaits) {
  const int port = free_port();
  std::mutex mutex;
  std::string said;  // guarded by it
  Threads ranks;
  for (int r = 0; r < 2; ++r) {
    MembershipOptions options = options_for(r, 1, 2, port);
    options.group.host_id = "made-up host " + std::to_string(r);
    // Neither is the first silent only because the machine has much to do, nor does the founding
    // use up the time that the other one waits.
    options.group.heartbeat_ms = test_support::deadline_ms(1000);
    options.group.notice = [&](const std::string& text) {
      const std::lock_guard lock(mutex);
      said += text + "\n";
    };
    options.last_call_ms = 100'000;
    ranks.push_back(std::make_unique<ThreadRank>(options));
    ASSERT_TRUE(eventually([&] { return endpoint_is_held(port); }));  // by the first one
  }
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  const std::uint64_t generation = ranks[1]->seen()->generation;
  ranks[0]->crash();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return test_support::has_values(said, "1 of 2 ranks (lost: rank 0 waiting");
  })) << said;
  EXPECT_EQ(ranks[1]->seen()->generation, generation);
  EXPECT_EQ(ranks[1]->error(), "");
}

TEST(MembershipTest, OfTwoHostsTheFirstMembersGoesOnAlone) {
  const int port = free_port();
  Threads ranks;
  for (int r = 0; r < 2; ++r) {
    MembershipOptions options = options_for(r, 1, 2, port);
    options.group.host_id = "made-up host " + std::to_string(r);
    options.last_call_ms = 100'000;
    ranks.push_back(std::make_unique<ThreadRank>(options));
    ASSERT_TRUE(eventually([&] { return endpoint_is_held(port); }));  // by the first one
  }
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks[1]->crash();
  ranks.pop_back();
  EXPECT_TRUE(eventually([&] { return all_see(ranks, 1); }));
}

TEST(MembershipTest, AFileCanBeTheJoinEndpoint) {
  const std::string path = testing::TempDir() + "/elastic-endpoint-" + std::to_string(free_port());
  const auto options = [&](int hint) {
    MembershipOptions o = options_for(hint, 2, 3, 1);
    o.group.init_method = "file://" + path;
    o.group.job.secret = "";
    o.group.local_world_size = o.group.world_size;
    return o;
  };
  Threads ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<ThreadRank>(options(r)));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  ranks.push_back(std::make_unique<ThreadRank>(options(-1)));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 3); }));
  std::vector<std::thread> leaving;
  for (auto& rank : ranks) leaving.emplace_back([&rank] { rank->leave(); });
  for (std::thread& t : leaving) t.join();
  struct stat status {};
  EXPECT_NE(stat(path.c_str(), &status), 0) << "the endpoint's file was not removed";
}

TEST(MembershipTest, AFileOfSomethingElseIsRejectedAtOnce) {
  const std::string path = testing::TempDir() + "/elastic-empty-" + std::to_string(free_port());
  for (const std::string text : {"", "not a rendezvous"}) {
    { std::ofstream(path) << text; }
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    MembershipOptions o = options_for(0, 1, 1, 1);
    o.group.init_method = "file://" + path;
    o.group.job.secret = "";
    o.group.local_world_size = o.group.world_size;
    try {
      Membership membership(o);
      ADD_FAILURE() << "'" << text << "' is taken for a rendezvous";
    } catch (const backends::ConfigurationError& error) {
      EXPECT_VALUES(error.what(), path + " not rendezvous file");
    }
  }
  unlink(path.c_str());
}

// As a port scanner that keeps its connections, or a neighbor who wants to be in the way.
TEST(MembershipTest, OpenConnectionsKeepNobodyOut) {
  const int port = free_port();
  Threads ranks = start_threads(2, 1, 4, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 2); }));
  std::vector<backends::Socket> crowd;
  std::string reason;
  for (int i = 0; i < 400; ++i)
    crowd.push_back(backends::connect_to({"127.0.0.1", port},
                                         base::deadline_in(test_support::deadline(5s)), reason));
  ranks.push_back(std::make_unique<ThreadRank>(options_for(-1, 1, 4, port)));
  EXPECT_TRUE(eventually([&] { return all_see(ranks, 3); }));
  EXPECT_TRUE(eventually([&] {  // all but the newest are closed
    return std::ranges::count_if(crowd, [](const backends::Socket& socket) {
             char byte;
             return recv(socket.fd(), &byte, 1, MSG_DONTWAIT) == 0;
           }) >= 400 - 64;
  }));
}

// Whoever is refused may try thousands of times: the lines are few.
TEST(MembershipTest, RefusalsAreCountedAndNotListed) {
  const int port = free_port();
  std::atomic<int> lines{0};
  MembershipOptions options = options_for(0, 1, 2, port);
  options.group.notice = [&](const std::string& line) {
    lines += line.find("refused a connection") != std::string::npos;
  };
  ThreadRank rank(options);
  ASSERT_TRUE(eventually([&] { return rank.seen().has_value(); }));
  for (int i = 0; i < 20; ++i) {
    MembershipOptions other = options_for(2, 1, 2, port);
    other.group.job.secret = std::string(64, 'a');
    Membership without_secret(other);
    EXPECT_THROW(without_secret.first_view(), backends::AuthenticationError);
  }
  EXPECT_GE(lines, 1);
  EXPECT_LE(lines, 4);
}

TEST(MembershipTest, WhoWaitsWhenTheJobEndsIsTold) {
  const int port = free_port();
  Threads ranks = start_threads(1, 1, 1, port);
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 1); }));
  ThreadRank waiting(options_for(1, 1, 1, port));
  test_support::pause(500ms);
  ranks[0]->leave();
  ASSERT_TRUE(eventually([&] { return !waiting.error().empty(); }));
  EXPECT_CONTAINS(waiting.error(), "the job has ended");
}

// Each generation is a group that computes.
TEST(MembershipTest, TheMembersOfAViewFormAGroup) {
  const int port = free_port();
  std::vector<std::future<float>> sums;
  for (int r = 0; r < 3; ++r) {
    sums.push_back(std::async(std::launch::async, [=] {
      MembershipOptions options = options_for(r, 1, 3, port);
      options.last_call_ms = 100'000;
      Membership membership(options);
      backends::View view = membership.first_view();
      const auto sum = [&] {
        const auto group = backends::join_group(membership.group_options(view));
        const auto communicator = group->make_communicator();
        float value = 1;
        communicator->all_reduce(&value, 1, backends::DType::kF32, backends::ReduceOp::kSum);
        group->leave();
        return value;
      };
      const float before = sum();
      if (r == 0) return before;  // its end is not an orderly one
      while (!membership.broken()) std::this_thread::sleep_for(1ms);
      view = membership.next_view();
      return before + 10 * sum();
    }));
  }
  EXPECT_EQ(sums[0].get(), 3.0F);
  EXPECT_EQ(sums[1].get(), 23.0F);
  EXPECT_EQ(sums[2].get(), 23.0F);
}

using Processes = std::vector<std::unique_ptr<ProcessRank>>;

Processes start_processes(int count, int min_ranks, int max_ranks, int port) {
  Processes ranks;
  for (int r = 0; r < count; ++r)
    ranks.push_back(std::make_unique<ProcessRank>(options_for(r, min_ranks, max_ranks, port)));
  return ranks;
}

TEST(MembershipProcesses, AStoppedOneIsLeftOutAndComesBackAsANewMember) {
  Processes ranks = start_processes(3, 1, 3, free_port());
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 3); }));
  ranks[0]->signal(SIGSTOP);
  std::unique_ptr<ProcessRank> stopped = std::move(ranks[0]);
  ranks.erase(ranks.begin());
  const bool went_on = eventually([&] { return all_see(ranks, 2); });
  stopped->signal(SIGCONT);
  ASSERT_TRUE(went_on);
  ranks.push_back(std::move(stopped));
  ASSERT_TRUE(eventually([&] { return all_see(ranks, 3); }));
  EXPECT_TRUE(ranks[2]->seen()->is_new_member);
  EXPECT_FALSE(ranks[0]->seen()->is_new_member);
}

// How long the others take; ENGINE_MEMBERSHIP_DEATHS chooses how many to measure.
TEST(MembershipProcesses, TheDeathOfOneOfFourIsSoonKnown) {
  const char* text = std::getenv("ENGINE_MEMBERSHIP_DEATHS");
  const int deaths = text == nullptr ? 2 : std::atoi(text);
  std::vector<double> times;
  for (int i = 0; i < deaths; ++i) {
    Processes ranks = start_processes(4, 1, 4, free_port());
    ASSERT_TRUE(eventually([&] { return all_see(ranks, 4); }));
    const int victim = i % 4;
    const auto killed = std::chrono::steady_clock::now().time_since_epoch().count();
    ranks[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    ranks.erase(ranks.begin() + victim);
    ASSERT_TRUE(eventually([&] { return all_see(ranks, 3); }));
    std::int64_t last = 0;
    for (auto& rank : ranks) last = std::max(last, rank->seen()->at_ns);
    times.push_back(static_cast<double>(last - killed) / 1e6);
  }
  std::ranges::sort(times);
  std::printf("from SIGKILL to the next view on all: median %.1f ms, p99 %.1f ms of %d\n",
              times[times.size() / 2], times[times.size() * 99 / 100], deaths);
}

}  // namespace
