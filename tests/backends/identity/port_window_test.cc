// Rank 0 is somewhere in a window of ports: taken ports, other services, other jobs, and names that
// do not resolve.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/join.h"
#include "backends/identity/name_lookup.h"
#include "io/base/time/deadline.h"
#include "tests/backends/group_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/test_clock.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using backends::JoinedStore;
using backends::Socket;
using group_harness::outcomes;
using test_support::free_ports;
using test_support::PassingTime;
using test_support::TestClock;
using Clock = std::chrono::steady_clock;

GroupOptions options(int rank, int world_size, int port, const std::string& job, int window = 16) {
  GroupOptions o = group_harness::options_for(rank, world_size, port);
  if (!job.empty()) o.job.id = job + " " + std::to_string(getpid());  // tests run side by side
  o.listen.port_window = window;
  return o;
}

// A service that accepts connections and answers garbage, or nothing.
class OtherService {
 public:
  OtherService(int port, bool answers)
      : listener_(backends::listen_on({"127.0.0.1", port}, 0ms)), answers_(answers) {
    thread_ = std::thread([this] { run(); });
  }
  ~OtherService() {
    stop_ = true;
    thread_.join();
  }
  int connections() const { return connections_; }

 private:
  void run() {
    std::vector<Socket> clients;
    while (!stop_) {
      pollfd p{listener_.fd(), POLLIN, 0};
      if (poll(&p, 1, 20) <= 0) continue;
      clients.emplace_back(accept(listener_.fd(), nullptr, nullptr));
      ++connections_;
      if (answers_)
        (void)backends::write_by(clients.back().fd(), "SSH-2.0-OpenSSH_9.2p1\r\n",
                                 base::deadline_in(1s));
    }
  }
  Socket listener_;
  const bool answers_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST(PortWindow, TwoJobsThatStartAtOnceNeitherCollideNorMerge) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    const int port = free_ports(16);
    const auto errors = outcomes(6, [&](int i) {
      const int rank = i % 3;
      const std::string job = i < 3 ? "red" : "blue";
      if (rank == 0 && repetition % 2 == 1) std::this_thread::sleep_for(i < 3 ? 50ms : 150ms);
      JoinedStore joined = backends::join_store(options(rank, 3, port, job));
      joined.store->set("job of " + std::to_string(rank), job);
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(joined.store->get("job of " + std::to_string(r), test_support::deadline(5s)),
                  job);
      joined.store->leave(test_support::deadline(5s));
    });
    EXPECT_EQ(errors, std::vector<std::string>(6));
  }
}

TEST(PortWindow, OtherServicesOnTheFirstPortsAreSkipped) {
  const int port = free_ports(16);
  const OtherService answering(port, true), silent(port + 1, false);
  std::mutex mutex;
  std::vector<std::string> notices;
  const auto start = Clock::now();
  const auto errors = outcomes(3, [&](int rank) {
    GroupOptions o = options(rank, 3, port, "j");
    if (rank == 0)
      o.notice = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        notices.push_back(line);
      };
    backends::join_store(o).store->leave(test_support::deadline(5s));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_FALSE(test_support::is_past(start, 4s))
      << "a second for the silent one, in one round or two";
  EXPECT_GE(answering.connections(), 1);
  EXPECT_GE(silent.connections(), 1);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_VALUES(notices[0], "port " + std::to_string(port) + " 127.0.0.1 taken: port " +
                                std::to_string(port + 2));
}

TEST(PortWindow, AFullWindowIsSaid) {
  const int port = free_ports(3);
  std::vector<Socket> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(backends::listen_on({"127.0.0.1", port + i}));
  const auto errors = outcomes(1, [&](int) { backends::join_store(options(0, 2, port, "j", 3)); });
  EXPECT_VALUES(errors[0], "peer: rank 0 127.0.0.1: ports " + std::to_string(port) + " to " +
                               std::to_string(port + 2));
}

TEST(PortWindow, WithoutRank0TheSearchEndsAtTheDeadlineAndNamesTheOtherService) {
  const int port = free_ports(16);
  const OtherService silent(port, false), answering(port + 3, true);
  const auto start = Clock::now();
  const auto errors = outcomes(1, [&](int) {
    GroupOptions o = options(1, 2, port, "j");
    o.rendezvous_timeout_ms = 1500;
    backends::join_store(o);
  });
  EXPECT_FALSE(test_support::is_past(start, 3s));
  EXPECT_CONTAINS(errors[0], "rank 0 did not appear at 127.0.0.1, ports " + std::to_string(port) +
                                 " to " + std::to_string(port + 15));
  EXPECT_VALUES(errors[0], "accepts answer");
}

TEST(PortWindow, ADifferentConfigurationOfTheSameJobIsStillAMismatch) {
  const int port = free_ports(16);
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options(rank, 2, port, "j");
    o.job.settings = {{"--seed", std::to_string(rank)}};
    backends::join_store(o);
  });
  for (const std::string& error : errors) EXPECT_CONTAINS(error, "mismatch: --seed: rank 0 ");
}

TEST(PortWindow, AnotherSecretIsAnAuthenticationErrorAlsoOnceRank0HasLeft) {
  const int port = free_ports(16);
  TestClock clocks[2];
  std::atomic<bool> waits{false}, is_rejected{false}, has_left{false};
  const PassingTime to_notices(clocks[0], 5s, [] { return true; }),
      of_rank_0(clocks[0], 24h, [&] { return waits && is_rejected; }),
      of_rank_1(clocks[1], 24h, [&] { return has_left.load(); });
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options(rank, 2, port, "j");
    o.rendezvous_timeout_ms = 24 * 3'600'000;
    if (rank == 1) o.job.secret = std::string(64, 'a');
    o.notice = [&](const std::string& line) {
      if (line.starts_with("waiting for 1 of 2 ranks: 1")) waits = true;
      if (line.find("still searching") != std::string::npos) is_rejected = true;
    };
    try {
      backends::join_store(o, clocks[rank]);
    } catch (...) {
      if (rank == 0) has_left = true;
      throw;
    }
  });
  EXPECT_CONTAINS(errors[0], "missing 1 of 2 ranks: 1");
  EXPECT_EQ(errors[1].rfind("authentication: ", 0), 0u) << errors[1];
}

TEST(PortWindow, AWindowNeedsAJobId) {
  const auto errors = outcomes(1, [&](int) { backends::join_store(options(0, 2, 2000, "")); });
  EXPECT_VALUES(errors[0], "configuration: 16 ports: 1 job id");
}

TEST(Names, UnresolvableHostsAreRetriedUntilTheDeadlineAndNamed) {
  for (const int rank : {0, 1}) {
    constexpr std::chrono::milliseconds timeout = 24h;
    TestClock clock;
    std::atomic<int> notices{0};  // each before a further attempt
    const PassingTime to_notices(clock, 5s, [] { return true; }),
        to_the_end(clock, timeout, [&] { return notices >= 2; });
    const auto errors = outcomes(1, [&](int) {
      GroupOptions o = options(rank, 2, 2000, "j");
      o.init_method = "tcp://no-such-host.invalid:2000";
      o.rendezvous_timeout_ms = static_cast<int>(timeout.count());
      o.notice = [&](const std::string&) { ++notices; };
      backends::join_store(o, clock);
    });
    int seconds = 0;
    EXPECT_EQ(std::sscanf(errors[0].c_str(), "peer: no rendezvous after %d s", &seconds), 1);
    EXPECT_GE(seconds, 24 * 3600) << "it gave up early";
    EXPECT_CONTAINS(errors[0], "cannot resolve host \"no-such-host.invalid\"");
  }
}

TEST(Names, ALookUpEndsAtTheDeadline) {
  std::string reason;
  EXPECT_TRUE(backends::look_up_host("no-such-host.invalid", Clock::now(), reason).empty());
  EXPECT_CONTAINS(reason, "\"no-such-host.invalid\"");
  EXPECT_EQ(backends::look_up_host("10.1.2.3", Clock::now(), reason),
            std::vector<std::string>{"10.1.2.3"});
  EXPECT_EQ(backends::look_up_host("::1", Clock::now(), reason), std::vector<std::string>{"::1"});
  EXPECT_TRUE(backends::is_loopback("127.0.1.1") && backends::is_loopback("::1"));
  EXPECT_FALSE(backends::is_loopback("10.0.0.1") || backends::is_loopback("localhost"));
}

// "0x7f000001" is not a numeric address to this program, but the resolver makes 127.0.0.1 of it:
// like a host whose own table gives its name to loopback.
TEST(Names, AMasterThatResolvesToLoopbackIsRefusedInAMultiHostWorld) {
  bool is_awaited = false;  // rank 0, or another rank
  const auto join = [&](int rank, std::optional<int> local_world_size,
                        const std::string& interface) {
    const int port = free_ports(16);  // a window of its own, in which nobody answers
    GroupOptions o = options(rank, 2, port, "j");
    o.init_method = "tcp://0x7f000001:" + std::to_string(port);
    o.local_world_size = local_world_size;
    o.listen.interface = interface;
    TestClock clock;
    const PassingTime time(clock, 600s, [&] { return is_awaited; });
    backends::join_store(o, clock);
  };
  for (const std::string& error : outcomes(2, [&](int rank) { join(rank, 1, ""); })) {
    EXPECT_VALUES(error, "configuration: rank 0, \"0x7f000001\", 127.0.0.1 --iface");
  }
  is_awaited = true;
  // One host, or nobody knows: it is tried.
  for (const std::optional<int> local : {std::optional<int>(), std::optional(2)})
    EXPECT_CONTAINS(outcomes(1, [&](int) { join(0, local, ""); })[0], "peer: no rendezvous after");
  // With an interface rank 0 is looked for there.
  EXPECT_CONTAINS(outcomes(2, [&](int rank) { join(rank, 1, "lo"); })[1],
                  "peer: no rendezvous after");
}

}  // namespace
