// ZeroMQ links by themselves: encrypted and not, who is let in, and what is lent to the library.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "backends/backend_error.h"
#include "backends/transport/zmq/zmq_backend.h"
#include "backends/transport/zmq/zmq_limits.h"
#include "backends/transport/zmq/zmq_links.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/link_job.h"
#include "tests/backends/transport/link_relay.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::BackendContext;
using backends::ControlWord;
using backends::Lane;
using backends::ZmqEncryption;
using backends::ZmqLinks;

class ZmqLinksTest : public ::testing::TestWithParam<ZmqEncryption> {
 protected:
  BackendContext context(int rank, std::chrono::milliseconds timeout = test_support::deadline(10s),
                         char secret = 's') {
    return {.rank = rank,
            .world_size = 2,
            .members = {0, 1},
            .store = store,
            .watch = watch,
            .prefix = "test",
            .address = "127.0.0.1",
            .secret = {std::string(32, secret), "test"},
            .timeout = timeout,
            .clock = *clock};
  }
  // The record of rank 0 for rank 1, with the address of a relay in place of rank 0's.
  static std::string relayed(const std::string& key, const std::string& value,
                             std::unique_ptr<link_job::LinkRelay>& relay) {
    std::string server_key, mechanism, endpoint;
    std::istringstream(value) >> server_key >> mechanism >> endpoint;
    const int port = backends::parse_endpoint(endpoint.substr(6), "test").port;
    relay = std::make_unique<link_job::LinkRelay>(
        port, link_job::ChangedByte{link_job::Way::kToListener, SIZE_MAX});
    const std::string body = server_key + " " + mechanism + " tcp://" + link_job::LinkRelay::kHost +
                             ":" + std::to_string(port);
    return body + " " +
           backends::to_hex(backends::keyed_hash({std::string(32, 's'), "test"},
                                                 "engine zmq record", key + " " + body));
  }
  map_store::MapStore store;
  link_job::FakeWatch watch;
  const base::Clock* clock = &base::kSteadyClock;
};

TEST_P(ZmqLinksTest, HeadsAndMessagesArriveInWhateverOrderTheyAreAskedFor) {
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    ZmqLinks links(context(rank), GetParam());
    links.connect(context(rank));
    const ControlWord word = backends::transfer_word(backends::Operation::kBarrier, 1, 0);
    const std::string head = "head of " + std::to_string(rank);
    const std::vector<char> share(200'000, static_cast<char>('a' + rank)),
        result(100'000, static_cast<char>('A' + rank));
    links.send_head(1 - rank, 1, word, head.data(), head.size());
    links.send(1 - rank, Lane::kShare, 0, share.data(), share.size());
    links.send(1 - rank, Lane::kResult, 1, result.data(), result.size());
    EXPECT_EQ(links.receive(1 - rank, Lane::kResult, 1, result.size())[99'999], 'A' + 1 - rank);
    EXPECT_EQ(links.receive(1 - rank, Lane::kShare, 0, share.size())[199'999], 'a' + 1 - rank);
    const backends::Head theirs = links.receive_head(1 - rank, 1);
    EXPECT_TRUE(theirs.word == word);
    EXPECT_EQ(std::string(theirs.payload, head.size()), "head of " + std::to_string(1 - rank));
    links.finish_sends();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Rank 1 waits for so long that it sends a filler. Rank 0 goes on without it, and then it is lost
// with the connection.
TEST_P(ZmqLinksTest, ALostFillerIsSentAgain) {
  std::unique_ptr<link_job::LinkRelay> relay;
  store.change = [&](const std::string& key, const std::string& value) {
    return key == "test/zmq/0/1" ? relayed(key, value, relay) : value;
  };
  const auto word = [](unsigned call) {
    return backends::transfer_word(backends::Operation::kBarrier, call, 0);
  };
  std::atomic<int> connected{0}, calls{0};  // the calls of rank 1
  std::atomic<std::size_t> before{0};       // bytes that rank 1 had sent
  std::atomic<bool> has_all{false};         // rank 0
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    BackendContext own = context(rank, test_support::deadline(30s));
    own.link_patience = own.timeout;
    ZmqLinks links(own, GetParam());
    links.connect(own);
    ++connected;
    EXPECT_TRUE(test_support::eventually([&] { return connected == 2; }));
    if (rank == 1) {
      EXPECT_TRUE(test_support::eventually([&] { return before > 0; }));
      for (const unsigned call : {1u, 2u}) {
        links.send_head(0, call % 2, word(call), nullptr, 0);
        EXPECT_TRUE(links.receive_head(0, call % 2).word == word(call));
        ++calls;
      }
      EXPECT_TRUE(test_support::eventually([&] { return has_all.load(); }, 60s));
      return;
    }
    before = relay->passed();
    EXPECT_TRUE(test_support::eventually([&] { return relay->passed() > before; }));
    relay->hold(link_job::Way::kToListener);
    EXPECT_TRUE(test_support::eventually([&] { return relay->held() > 10'000; }));  // the filler
    links.send_head(1, 1, word(1), nullptr, 0);
    EXPECT_TRUE(links.receive_head(1, 1).word == word(1));
    links.send_head(1, 0, word(2), nullptr, 0);
    EXPECT_TRUE(test_support::eventually([&] { return calls == 2; }));
    const int port = relay->port();
    relay.reset();
    relay = std::make_unique<link_job::LinkRelay>(
        port, link_job::ChangedByte{link_job::Way::kToListener, SIZE_MAX});
    EXPECT_TRUE(links.receive_head(1, 0).word == word(2));
    has_all = true;
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// As SocketMesh.ConnectionsWithinTheMachineAreNotPaced.
TEST_P(ZmqLinksTest, ConnectionsOnLoopbackAreNotPacedUnlessEncrypted) {
  std::vector<std::unique_ptr<ZmqLinks>> links(2);
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    links[static_cast<std::size_t>(rank)] = std::make_unique<ZmqLinks>(context(rank), GetParam());
    links[static_cast<std::size_t>(rank)]->connect(context(rank));
  });
  ASSERT_EQ(errors, std::vector<std::string>(2));
  if (GetParam() == ZmqEncryption::kAlways) return;  // as between hosts
  int connections = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 ||
        peer.ss_family != AF_INET)
      continue;
    ++connections;
    EXPECT_NE(link_job::congestion_control(fd), "bbr");
  }
  EXPECT_EQ(connections, 2);
}

TEST_P(ZmqLinksTest, ADifferentSecretIsRefusedByName) {
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    const BackendContext own = context(rank, test_support::deadline(2s), rank == 0 ? 's' : 't');
    ZmqLinks links(own, GetParam());
    links.connect(own);
  });
  EXPECT_EQ(errors[0].rfind("authentication: what rank 1 published", 0), 0u) << errors[0];
  EXPECT_EQ(errors[1].rfind("authentication: what rank 0 published", 0), 0u) << errors[1];
}

// An unauthenticated client connects first, knows the address and the public keys, and sends; the
// link is still the rank's.
TEST_P(ZmqLinksTest, AnUnauthenticatedClientDoesNotTakeTheLinkOfARank) {
  zmq::context_t zmq;
  zmq::socket_t client;
  store.seen = [&](const std::string& key, const std::string& value) {
    if (key.find("/0/1") == std::string::npos) return;
    std::string server_key, mechanism, endpoint;
    std::istringstream(value) >> server_key >> mechanism >> endpoint;
    client = zmq::socket_t(zmq, zmq::socket_type::pair);
    client.set(zmq::sockopt::linger, 0);
    if (mechanism == "plain") {
      client.set(zmq::sockopt::plain_username, "1");
      client.set(zmq::sockopt::plain_password, "guessed");
    } else {
      char open[41] = {}, secret[41] = {};
      ASSERT_EQ(zmq_curve_keypair(open, secret), 0);
      client.set(zmq::sockopt::curve_serverkey, server_key);
      client.set(zmq::sockopt::curve_publickey, open);
      client.set(zmq::sockopt::curve_secretkey, secret);
    }
    EXPECT_EQ(mechanism, GetParam() == ZmqEncryption::kAlways ? "curve" : "plain");
    client.connect(endpoint);
    client.send(zmq::str_buffer("let me in"), zmq::send_flags::dontwait);
    std::this_thread::sleep_for(200ms);
  };
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    ZmqLinks links(context(rank), GetParam());
    links.connect(context(rank));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_P(ZmqLinksTest, APeerThatSendsNothingIsNamedAtTheDeadline) {
  constexpr auto timeout = 600s;
  test_support::TestClock test_clock;
  clock = &test_clock;
  std::atomic<bool> waits{false}, has_connected{false}, timed_out{false};
  const test_support::PassingTime time(test_clock, timeout, [&] { return waits && has_connected; });
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    ZmqLinks links(context(rank, timeout), GetParam());
    links.connect(context(rank, timeout));
    if (rank == 1) {
      has_connected = true;
      EXPECT_TRUE(test_support::eventually([&] { return timed_out.load(); }));
      return;
    }
    waits = true;
    try {
      links.receive_head(1, 1);
    } catch (...) {
      timed_out = true;
      throw;
    }
  });
  EXPECT_VALUES(errors[0], "timeout 600000 ms rank 1");
}

// The clock alone passes.
TEST_P(ZmqLinksTest, ARankWithoutAnAddressIsNamed) {
  constexpr auto timeout = 600s;
  test_support::TestClock test_clock;
  clock = &test_clock;
  const test_support::PassingTime time(test_clock, 60s, [] { return true; });
  const auto errors = group_harness::outcomes(1, [&](int) {
    ZmqLinks links(context(0, timeout), GetParam());
    links.connect(context(0, timeout));
  });
  EXPECT_VALUES(errors[0], "peer: timeout 600000 ms, address of rank 1");
}

// Signals that a program handles, as those that ask it to save, arrive in whatever thread waits.
TEST_P(ZmqLinksTest, SignalsDoNotEndAWait) {
  static std::atomic<int> signals{0};
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, &before);
  std::atomic<bool> waits{false};
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    ZmqLinks links(context(rank), GetParam());
    links.connect(context(rank));
    const ControlWord word = backends::transfer_word(backends::Operation::kBarrier, 1, 0);
    if (rank == 0) {
      links.send_head(1, 1, word, nullptr, 0);
      const pthread_t self = pthread_self();
      std::thread interrupts([&] {
        const int first = signals;
        EXPECT_TRUE(test_support::eventually([&] {
          pthread_kill(self, SIGUSR1);
          return signals >= first + 20;
        }));
        waits = true;
      });
      try {
        links.receive_head(1, 1);
      } catch (...) {
        interrupts.join();
        throw;
      }
      interrupts.join();
      return;
    }
    EXPECT_TRUE(test_support::eventually([&] { return waits.load(); }));
    links.send_head(0, 1, word, nullptr, 0);
    links.receive_head(0, 1);
  });
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A peer that has ended reads nothing: shut_down() must return nevertheless, and release the
// memory.
TEST_P(ZmqLinksTest, LettingGoReturnsAfterThePeerHasEnded) {
  std::atomic<bool> ended{false};
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    auto own = std::make_unique<ZmqLinks>(context(rank), GetParam());
    ZmqLinks& links = *own;
    links.connect(context(rank));
    if (rank == 1) {
      own.reset();
      ended = true;
      return;
    }
    EXPECT_TRUE(test_support::eventually([&] { return ended.load(); }));
    const auto start = std::chrono::steady_clock::now();
    std::vector<char> data(200'000, 'x');
    links.abort("test");
    EXPECT_THROW(
        {
          for (int i = 0; i < 100; ++i) links.send(1, Lane::kShare, 0, data.data(), data.size());
          links.finish_sends();
          links.receive_head(1, 1);
        },
        backends::PeerError);
    links.shut_down(false);
    EXPECT_FALSE(test_support::is_past(start, 2s));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A connection on which something has been changed. The first byte of a message's frame is its
// flags, the next ones its length.
TEST_P(ZmqLinksTest, AChangedByteIsReportedAndNotWaitedFor) {
  for (const std::size_t ahead : {1, 2, 6, 7, 8, 9, 20}) {
    const auto begin = std::chrono::steady_clock::now();
    store.seen = {};
    std::unique_ptr<link_job::LinkRelay> relay;
    std::atomic<int> connected{0};
    store.change = [&](const std::string& key, const std::string& value) {
      return key == "test/zmq/0/1" ? relayed(key, value, relay) : value;
    };
    const auto errors = group_harness::outcomes(2, [&](int rank) {
      const BackendContext own = context(rank, 600s);
      ZmqLinks links(own, GetParam());
      links.connect(own);
      ++connected;
      EXPECT_TRUE(test_support::eventually([&] { return connected == 2; }));
      if (rank == 1) relay->change({link_job::Way::kToListener, relay->passed() + ahead});
      const ControlWord word = backends::transfer_word(backends::Operation::kBroadcast, 1, 300, 1);
      const std::string payload(rank == 1 ? 300 : 0, 'x');
      for (std::uint32_t call = 1; call <= 3; ++call) {
        links.send_head(1 - rank, call % 2, word, payload.data(), payload.size());
        const backends::Head theirs = links.receive_head(1 - rank, call % 2);
        backends::expect_equal(word, rank, theirs.word, 1 - rank);
        if (theirs.bytes != 300 - payload.size()) throw backends::PeerError("rank 1 sent too much");
      }
    });
    if (!relay->has_changed()) continue;  // a ping of libzmq's came between
    EXPECT_NE(errors[0] + errors[1], "") << ahead;
    EXPECT_CONTAINS(errors[0] + errors[1], "rank ") << ahead;
    EXPECT_FALSE(test_support::is_past(begin, 60s)) << ahead;
  }
}

TEST_P(ZmqLinksTest, ALinkThatBreaksIsNamedAtOnce) {
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    ZmqLinks links(context(rank, 600s), GetParam());
    links.connect(context(rank, 600s));
    if (rank == 1) return;  // its end closes the connection
    links.receive_head(1, 1);
  });
  EXPECT_VALUES(errors[0], "peer: rank 1 broke");
  EXPECT_EQ(errors[1], "");
}

// Each connection would cost libzmq's thread a handshake.
TEST_P(ZmqLinksTest, NoConnectionIsTakenAfterTheSetUp) {
  std::string endpoint;
  store.seen = [&](const std::string& key, const std::string& value) {
    std::string server_key, mechanism;
    if (key == "test/zmq/0/1") std::istringstream(value) >> server_key >> mechanism >> endpoint;
  };
  std::vector<std::unique_ptr<ZmqLinks>> links(2);
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    links[static_cast<std::size_t>(rank)] = std::make_unique<ZmqLinks>(context(rank), GetParam());
    links[static_cast<std::size_t>(rank)]->connect(context(rank));
  });
  ASSERT_EQ(errors, std::vector<std::string>(2));
  std::string reason;
  const backends::Socket late = backends::connect_to(
      backends::parse_endpoint(endpoint.substr(6), "test"), base::deadline_in(300ms), reason);
  EXPECT_FALSE(late) << "libzmq took a connection";
}

// In a process of its own, which has no more than `bytes` of memory left.
int end_with_memory(std::size_t bytes, const std::string& output,
                    const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    [[maybe_unused]] const FILE* file = std::freopen(output.c_str(), "w", stderr);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit{used + bytes, used + bytes}, none{0, 0};
    setrlimit(RLIMIT_AS, &limit);
    setrlimit(RLIMIT_CORE, &none);
    try {
      body();
      _exit(0);
    } catch (const backends::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    } catch (...) {
      std::fprintf(stderr, "another error\n");
    }
    std::fflush(stderr);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class ZmqLimits : public ::testing::Test {
 protected:
  std::string text() const {
    std::ifstream file(output);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ~ZmqLimits() override { std::filesystem::remove(output); }
  const std::string output =
      ::testing::TempDir() + "zmq_limits_" + std::to_string(getpid()) + ".txt";
};

TEST_F(ZmqLimits, TooLittleMemoryOrTooFewThreadsIsOneLine) {
  const auto require = [] { backends::require_zmq_resources(2); };
  EXPECT_EQ(end_with_memory(std::size_t{1} << 30, output, require), 0) << text();
  EXPECT_EQ(end_with_memory(4 << 20, output, require), 1);
  EXPECT_VALUES(text(), "backend zmq takes limit (ulimit -v)");
  EXPECT_EQ(end_with_memory(34 << 20, output, require), 1);
  EXPECT_CONTAINS(text(),
                  "MiB of memory, which this process cannot get; the limit of this process");
}

TEST_F(ZmqLimits, AnAbortOfLibzmqIsOneLineAndAnotherOneEndsAsBefore) {
  const auto end_in_abort = [&](bool inside) {
    return end_with_memory(std::size_t{1} << 30, output, [&] {
      backends::report_zmq_aborts();
      std::optional<backends::InsideZmq> in;
      if (inside) in.emplace();
      std::abort();
    });
  };
  EXPECT_EQ(end_in_abort(true), 69);
  EXPECT_VALUES(text(), "engine: error: libzmq");
  EXPECT_EQ(end_in_abort(false), 128 + SIGABRT);
  EXPECT_EQ(text(), "");
}

INSTANTIATE_TEST_SUITE_P(Encryption, ZmqLinksTest,
                         ::testing::Values(ZmqEncryption::kBetweenHosts, ZmqEncryption::kAlways),
                         [](const auto& which) {
                           return which.param == ZmqEncryption::kAlways ? "curve" : "plain";
                         });

}  // namespace
