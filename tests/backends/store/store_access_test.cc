// The store: keys, authentication, the reasons of refusals, and the cost of unauthenticated
// connections.
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/join.h"
#include "backends/identity/name_lookup.h"
#include "io/base/time/deadline.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/test_clock.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using backends::JoinedStore;
using group_harness::connect_to_port;
using group_harness::kSecret;
using group_harness::Listener;
using group_harness::open_listener;
using group_harness::options_for;
using group_harness::outcomes;
using test_support::PassingTime;
using test_support::TestClock;
using Clock = std::chrono::steady_clock;

// Joins `world_size` ranks whose options `change` may alter; body gets each rank's store.
std::vector<std::string> join_all(int world_size,
                                  const std::function<void(int, GroupOptions&)>& change,
                                  const std::function<void(int, JoinedStore&)>& body = {}) {
  const Listener listener = open_listener();
  return outcomes(world_size, [&](int rank) {
    GroupOptions o = options_for(rank, world_size, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    if (change) change(rank, o);
    JoinedStore joined = backends::join_store(o);
    if (body) body(rank, joined);
    joined.store->leave(test_support::deadline(5s));
  });
}

// Whether the server closes the connection within the time, scaled.
bool is_closed_within(const backends::Socket& socket, std::chrono::milliseconds time) {
  const auto until = base::deadline_in(test_support::deadline(time));
  char buffer[256];
  for (;;) {
    pollfd p{socket.fd(), POLLIN, 0};
    if (poll(&p, 1, backends::milliseconds_left(until)) <= 0) return false;
    if (recv(socket.fd(), buffer, sizeof buffer, 0) <= 0) return true;
  }
}

TEST(Store, KeepsKeysForAllRanks) {
  const auto errors = join_all(3, {}, [](int rank, JoinedStore& j) {
    backends::Store& store = *j.store;
    const std::string me = std::to_string(rank), next = std::to_string((rank + 1) % 3);
    const std::string binary("\0\xff\n", 3);
    store.set("from " + me, binary + me);
    EXPECT_EQ(store.get("from " + next, test_support::deadline(5s)), binary + next);
    store.add("sum", rank + 1);
    store.set("added " + me, "");
    for (int r = 0; r < 3; ++r) store.get("added " + std::to_string(r), test_support::deadline(5s));
    EXPECT_EQ(store.add("sum", 0), 6);
    EXPECT_EQ(store.get("sum", test_support::deadline(5s)), "6");
    if (rank == 0) {
      store.set("gone", "x");
      store.remove("gone");
      EXPECT_THROW(store.get("gone", 50ms), backends::PeerError);
      try {
        store.get("nobody sets this", 50ms);
        ADD_FAILURE();
      } catch (const backends::PeerError& error) {
        EXPECT_CONTAINS(error.what(), "nobody sets this");
      }
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(Store, LargeValuesPass) {
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(join_all(2, {},
                     [&](int rank, JoinedStore& j) {
                       if (rank == 0) j.store->set("large", large);
                       EXPECT_EQ(j.store->get("large", test_support::deadline(5s)), large);
                     }),
            std::vector<std::string>(2));
}

TEST(Store, AnyStartOrder) {
  const int port = test_support::free_port();
  const auto errors = outcomes(3, [&](int rank) {
    std::this_thread::sleep_for(rank == 0 ? 400ms : 0ms);
    GroupOptions o = options_for(rank, 3, port);
    JoinedStore joined = backends::join_store(o);
    EXPECT_EQ(joined.address, "127.0.0.1");
    joined.store->leave(test_support::deadline(5s));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// An IPv4-mapped address is that IPv4 address, wherever it is given.
TEST(Store, AMappedAddressIsTheIpv4AddressInIt) {
  for (const char* host : {"::ffff:127.0.0.1", "::FFFF:7f00:1", "0:0:0:0:0:ffff:127.0.0.1"}) {
    EXPECT_EQ(to_string(backends::parse_endpoint("[" + std::string(host) + "]:29500", "test")),
              "127.0.0.1:29500");
    EXPECT_EQ(backends::local_endpoint(backends::listen_on({host, 0}).fd()).host, "127.0.0.1");
    EXPECT_EQ(backends::interface_address(host), "127.0.0.1");
    std::string reason;
    EXPECT_EQ(backends::look_up_host(host, base::deadline_in(test_support::deadline(1s)), reason),
              std::vector<std::string>{"127.0.0.1"});
  }
  EXPECT_EQ(backends::parse_endpoint("[::1]:5", "test").host, "::1");
}

TEST(Store, ListeningSaysForWhomAndWhatIsTaken) {
  const auto error = [](const backends::Endpoint& at, const backends::ListenPurpose& purpose) {
    return test_support::error_of<backends::Error>(
        [&] { backends::listen_on(at, std::chrono::milliseconds(0), purpose); });
  };
  const backends::Socket taken = backends::listen_on({"127.0.0.1", 0});
  const backends::Endpoint at = backends::local_endpoint(taken.fd());
  EXPECT_VALUES(error(at, {}), to_string(at) + ": port taken");
  EXPECT_EQ(error(at, backends::kRankZeroListens), "rank 0 " + error(at, {}));
  EXPECT_VALUES(error({"192.0.2.250", 5}, {}), "192.0.2.250:5: not address of this host");
  EXPECT_VALUES(error({"192.0.2.250", 5}, backends::kRankZeroListens),
                "rank 0 192.0.2.250:5: not address of this host; --iface");
}

// In a process and a network of their own, whose kernel may choose from one port. Returns the error
// of listening on a second one; "" where that is not permitted.
std::string error_without_free_ports() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return "";
  const backends::Socket any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << "40000 40000" << std::flush;
  if (ioctl(any.fd(), SIOCSIFFLAGS, &request) != 0 || !range) return "";
  const backends::Socket only = backends::listen_on({"127.0.0.1", 0});
  return test_support::error_of<backends::Error>([&] {
    backends::listen_on({"127.0.0.1", 0}, std::chrono::milliseconds(0));
  });
}

TEST(Store, NoFreePortIsNotCalledPort0) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = error_without_free_ports();
    _exit(write(ends[1], error.data(), error.size()) == std::ssize(error) ? 0 : 1);
  }
  close(ends[1]);
  std::string error(500, '\0');
  error.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], error.data(), 500))));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  if (error.empty()) GTEST_SKIP() << "cannot make a network namespace";
  EXPECT_VALUES(error, "127.0.0.1:0: no free port; net.ipv4.ip_local_port_range");
}

TEST(Store, ListensOnTheGivenAddressOnly) {
  EXPECT_THROW(backends::listen_on({"0.0.0.0", 0}), backends::ConfigurationError);
  EXPECT_THROW(backends::listen_on({"::", 0}), backends::ConfigurationError);
  EXPECT_THROW(backends::listen_on({"192.0.2.250", 0}), backends::ConfigurationError);
  EXPECT_EQ(backends::local_endpoint(backends::listen_on({"localhost", 0}).fd())
                .host.substr(0, 3)
                .find_first_not_of("127:"),
            std::string::npos);
}

TEST(Store, AWrongSecretIsRefusedAndSaid) {
  std::mutex mutex;
  std::vector<std::string> notices;
  const Listener listener = open_listener();
  TestClock clock;
  std::atomic<bool> waits{false}, has_failed{false};
  const PassingTime to_notices(clock, 5s, [] { return true; }),
      to_the_end(clock, 24h, [&] { return waits && has_failed; });
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, listener.port);
    if (rank == 0) {
      o.listen.fd = listener.fd;
      o.rendezvous_timeout_ms = 24 * 3'600'000;
      o.notice = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        if (line.starts_with("waiting for 1 of 2 ranks: 1")) waits = true;
        if (!line.starts_with("waiting for ")) notices.push_back(line);
      };
      return static_cast<void>(backends::join_store(o, clock));
    }
    o.job.secret = std::string(64, 'a');
    try {
      backends::join_store(o);
    } catch (...) {
      has_failed = true;
      throw;
    }
  });
  EXPECT_EQ(errors[1].rfind("authentication: ", 0), 0u) << errors[1];
  EXPECT_CONTAINS(errors[0], "missing 1 of 2 ranks: 1");
  EXPECT_CONTAINS(errors[0], "secret");
  ASSERT_FALSE(notices.empty());
  EXPECT_VALUES(notices[0], "proved secret");
  EXPECT_EQ((errors[0] + errors[1] + notices[0]).find(kSecret), std::string::npos);
}

TEST(Store, ShortSecretsAreRefused) {
  GroupOptions o = options_for(0, 2, 1);
  o.job.secret = "abcd";
  EXPECT_THROW(backends::join_store(o), backends::ConfigurationError);
}

TEST(Store, AnotherWorldSizeNamesBothSides) {
  const auto errors = join_all(3, [](int rank, GroupOptions& o) {
    if (rank == 2) o.world_size = 4;
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.rfind("mismatch: ", 0), 0u) << error;
    EXPECT_CONTAINS(error, "\"3\" on rank 0");
    EXPECT_CONTAINS(error, "\"4\" on rank 2");
  }
}

TEST(Store, TheSameRankTwiceIsAMismatch) {
  const auto errors = join_all(3, [](int rank, GroupOptions& o) {
    if (rank == 2) o.rank = 1;
  });
  for (const std::string& error : errors) EXPECT_CONTAINS(error, "rank 1 joined twice");
}

TEST(Store, AnotherSettingIsNamedToAllWithBothValues) {
  const auto errors = join_all(3, [](int rank, GroupOptions& o) {
    o.job.settings = {{"--lr", "0.1"}, {"--batch-size", rank == 2 ? "64" : "128"}};
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find("mismatch: --batch-size: rank 0 (host "), 0u) << error;
    EXPECT_CONTAINS(error, ") has 128, rank 2 (host ");
    EXPECT_CONTAINS(error, ") has 64");
    EXPECT_EQ(error.find("--lr"), std::string::npos) << error;
  }
}

TEST(Store, OfSeveralRanksThatDifferOneIsNamedToAll) {
  const auto errors = join_all(4, [](int rank, GroupOptions& o) {
    o.job.settings = {{"--seed", rank >= 2 ? "1" : "0"}};
  });
  for (const std::string& error : errors) EXPECT_CONTAINS(error, "mismatch: --seed: rank 0 ");
}

TEST(Store, SettingsAreBounded) {
  GroupOptions o = options_for(0, 2, 1);
  o.job.settings = {{"--model", std::string(70'000, 'm')}};
  EXPECT_THROW(backends::join_group(o), backends::ConfigurationError);
}

TEST(Store, AnotherBuildIsAMismatch) {
  const auto errors =
      join_all(2, [](int rank, GroupOptions& o) { o.job.build = "v" + std::to_string(rank); });
  for (const std::string& error : errors) EXPECT_CONTAINS(error, "engine build");
}

TEST(Store, AnotherJobIsRefusedWithoutHarmToThisOne) {
  const Listener listener = open_listener();
  std::atomic<bool> refused{false};
  const auto errors = outcomes(3, [&](int rank) {
    GroupOptions o = options_for(rank == 2 ? 1 : rank, 2, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    if (rank == 1) {
      EXPECT_TRUE(test_support::eventually([&] { return refused.load(); }));
    }
    if (rank == 2) {
      o.job.id = "another";
      try {
        backends::join_store(o);
      } catch (...) {
        refused = true;
        throw;
      }
    }
    backends::join_store(o).store->leave(test_support::deadline(5s));
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_CONTAINS(errors[2], "mismatch: job id");
}

// A restarted rank may connect while the previous group is still ending.
TEST(Store, ARestartedRankWaitsForTheGroupBeforeIt) {
  const Listener listener = open_listener();
  std::atomic<bool> tried{false};
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    JoinedStore joined = backends::join_store(o);
    if (rank == 1) {
      GroupOptions again = options_for(1, 2, listener.port);
      EXPECT_THROW(backends::join_store(again), backends::MismatchError);
      again.restarted = true;
      again.rendezvous_timeout_ms = 1000;
      const auto start = std::chrono::steady_clock::now();
      EXPECT_THROW(backends::join_store(again), backends::PeerError);
      EXPECT_GE(std::chrono::steady_clock::now() - start, 900ms);
      tried = true;
    }
    for (int i = 0; i < 50 || !tried; ++i)
      joined.store->add("counter", 1);  // the group is not disturbed
    joined.store->leave(test_support::deadline(5s));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(Store, ATakenPortIsSaid) {
  const Listener listener = open_listener();
  GroupOptions o = options_for(0, 2, listener.port);
  try {
    backends::join_store(o);
    ADD_FAILURE();
  } catch (const backends::PeerError& error) {
    EXPECT_CONTAINS(error.what(), "taken by another process");
  }
  close(listener.fd);
}

constexpr std::chrono::milliseconds kLongTimeout = std::chrono::hours(24);

// Makes a notice() that sets `flag` at a line with this text.
std::function<void(const std::string&)> set_at(const std::string& text, std::atomic<bool>& flag) {
  return [text, &flag](const std::string& line) {
    if (line.find(text) != std::string::npos) flag = true;
  };
}

TEST(Store, MissingRanksAreNamedEverywhere) {
  const Listener listener = open_listener();
  TestClock clock;
  std::atomic<bool> has_joined{false};
  const PassingTime to_notices(clock, 5s, [] { return true; }),
      to_the_end(clock, kLongTimeout, [&] { return has_joined.load(); });
  const auto errors = outcomes(2, [&](int i) {
    GroupOptions o = options_for(i == 0 ? 0 : 2, 4, listener.port);
    if (i != 0) return static_cast<void>(backends::join_store(o));  // is told by rank 0
    o.rendezvous_timeout_ms = static_cast<int>(kLongTimeout.count());
    o.listen.fd = listener.fd;
    o.notice = set_at("waiting for 2 of 4 ranks: 1, 3 (", has_joined);
    backends::join_store(o, clock);
  });
  for (const std::string& error : errors) {
    EXPECT_CONTAINS(error, "peer: ");
    EXPECT_CONTAINS(error, "missing 2 of 4 ranks: 1, 3");
  }
}

// Whichever rank's time is over first: one that was there and gave up is not called missing.
TEST(Store, ARankThatGaveUpEarlierIsNotMissing) {
  const Listener listener = open_listener();
  TestClock clocks[2];
  std::atomic<bool> has_joined{false}, has_left{false};
  const PassingTime to_notices_0(clocks[0], 5s, [] { return true; }),
      to_notices_1(clocks[1], 5s, [] { return true; }),
      to_the_end_0(clocks[0], kLongTimeout, [&] { return has_left.load(); }),
      to_the_end_1(clocks[1], kLongTimeout, [&] { return has_joined.load(); });
  const auto errors = outcomes(2, [&](int i) {
    GroupOptions o = options_for(i == 0 ? 0 : 2, 4, listener.port);
    o.rendezvous_timeout_ms = static_cast<int>(kLongTimeout.count());
    if (i == 0) o.listen.fd = listener.fd;
    o.notice = i == 0 ? set_at("joined and left again: 2", has_left)
                      : set_at("waiting for 2 of 4 ranks: 1, 3 (", has_joined);
    backends::join_store(o, clocks[i]);
  });
  EXPECT_VALUES(errors[0], "missing 2 of 4 ranks: 1, 3; left again: 2");
  EXPECT_CONTAINS(errors[1], "missing 2 of 4 ranks: 1, 3");
}

TEST(Store, AMissingRankZeroIsNamed) {
  GroupOptions o = options_for(1, 2, test_support::free_port());
  TestClock clock;
  std::atomic<bool> has_tried{false};
  const PassingTime to_notices(clock, 5s, [] { return true; }),
      to_the_end(clock, kLongTimeout, [&] { return has_tried.load(); });
  o.rendezvous_timeout_ms = static_cast<int>(kLongTimeout.count());
  o.notice = set_at("waiting for rank 0 at ", has_tried);
  try {
    backends::join_store(o, clock);
    ADD_FAILURE();
  } catch (const backends::PeerError& error) {
    EXPECT_CONTAINS(error.what(), "rank 0 did not appear");
    EXPECT_CONTAINS(error.what(), "refused");
  }
}

TEST(Store, WaitingIsReportedFromTheFifthSecondOn) {
  std::string notice;
  const Listener listener = open_listener();
  TestClock clock;
  const PassingTime time(clock, 1s, [] { return true; });
  const auto errors = outcomes(1, [&](int) {
    GroupOptions o = options_for(0, 3, listener.port);
    o.listen.fd = listener.fd;
    o.rendezvous_timeout_ms = 600'000;
    o.notice = [&](const std::string& line) {
      if (line.starts_with("waiting for 2 of 3 ranks")) notice = line;
    };
    o.cancelled = [&] { return !notice.empty(); };  // called by the thread that calls notice()
    backends::join_store(o, clock);
  });
  EXPECT_VALUES(errors[0], "other: stopped");
  int seconds = 0;
  EXPECT_EQ(std::sscanf(notice.c_str(), "waiting for 2 of 3 ranks: 1, 2 (%d s of 600 s)", &seconds),
            1)
      << notice;
  EXPECT_GE(seconds, 5) << notice;
}

TEST(Store, WaitingIsReportedByOneRankOfAHost) {
  const Listener listener = open_listener();
  std::mutex mutex;
  std::set<int> speakers;
  TestClock clock;
  std::vector<std::optional<base::Deadline>> due(3);  // of each rank's notice, at the latest
  std::vector<int> turns(3);                          // of each rank, since then
  const PassingTime time(clock, 1s, [] { return true; });
  outcomes(3, [&](int rank) {
    GroupOptions o = options_for(rank, 4, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    o.local_rank = rank;
    o.rendezvous_timeout_ms = 600'000;
    o.notice = [&, rank](const std::string& line) {
      const std::lock_guard lock(mutex);
      if (line.starts_with("waiting for")) speakers.insert(rank);
    };
    o.cancelled = [&, r = static_cast<std::size_t>(rank)] {  // once all have had the time to say it
      const std::lock_guard lock(mutex);
      if (!due[r]) due[r] = clock.deadline_in(5s);
      if (clock.has_passed(*due[r])) ++turns[r];
      return std::ranges::min(turns) >= 2;
    };
    backends::join_store(o, clock);
  });
  EXPECT_EQ(speakers, std::set<int>{0});
}

TEST(Store, GarbageIsRefusedAndDisturbsNoRank) {
  const Listener listener = open_listener();
  std::atomic<bool> noise_done{false};
  std::thread noise([&] {
    std::vector<backends::Socket> idle;
    for (int i = 0; i < 300; ++i) {
      backends::Socket s = connect_to_port(listener.port);
      const std::string garbage[] = {"GET / HTTP/1.1\r\n\r\n", std::string(4, '\xff'),
                                     std::string(3000, 'x'), std::string("\x01\0\0\0\x01", 5), ""};
      (void)backends::write_by(s.fd(), garbage[i % 5],
                               base::deadline_in(test_support::deadline(20s)));
      if (i % 5 == 0) {
        EXPECT_TRUE(is_closed_within(s, 20s));
      }
      if (i % 5 == 4) idle.push_back(std::move(s));
    }
    noise_done = true;
  });
  const auto errors = outcomes(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(100ms);
    GroupOptions o = options_for(rank, 2, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    JoinedStore joined = backends::join_store(o);
    for (int i = 0; i < 50 || !noise_done; ++i) joined.store->add("counter", 1);
    joined.store->leave(test_support::deadline(5s));
  });
  noise.join();
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// At most 64 connections may be unauthenticated: a further one makes the server close the oldest.
// The newest stays open for its five seconds.
TEST(Store, UnauthenticatedConnectionsAreBoundedAndTimed) {
  const Listener listener = open_listener();
  std::atomic<bool> done{false};
  GroupOptions o = options_for(0, 2, listener.port);
  o.listen.fd = listener.fd;
  o.rendezvous_timeout_ms = 600'000;
  o.cancelled = [&] { return done.load(); };
  std::thread rank_0([&] { EXPECT_THROW(backends::join_store(o), backends::CancelledError); });
  std::vector<backends::Socket> idle;
  idle.reserve(80);
  for (int i = 0; i < 79; ++i) idle.push_back(connect_to_port(listener.port));
  const auto start = Clock::now();
  idle.push_back(connect_to_port(listener.port));
  for (int i = 0; i < 16; ++i)
    EXPECT_TRUE(is_closed_within(idle[static_cast<std::size_t>(i)], 20s)) << i;
  EXPECT_TRUE(is_closed_within(idle.back(), 20s));
  EXPECT_GE(Clock::now() - start, 5s) << "the newest connection was closed early";
  done = true;
  rank_0.join();
}

}  // namespace
