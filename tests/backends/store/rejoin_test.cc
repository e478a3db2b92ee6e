// Rejoining: a rank whose connection broke while it joined reconnects and gets the agreed state.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/identity/join.h"
#include "backends/store/private_files.h"
#include "io/base/time/deadline.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/backends/store/store_proxy.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::Frame;
using backends::FrameType;
using backends::FrameWriter;
using backends::GroupOptions;
using backends::JoinedStore;
using backends::Socket;
using group_harness::connect_to_port;
using group_harness::Cut;
using group_harness::Listener;
using group_harness::open_listener;
using group_harness::options_for;
using group_harness::outcomes;
using group_harness::Proxy;
using group_harness::read_frame;

const std::chrono::milliseconds kTimeout = group_harness::kProxyTimeout;

using test_support::eventually;

struct CutCase {
  int world_size;
  Cut cut;
};

std::string cut_name(const CutCase& c) {
  const std::map<FrameType, std::string> names = {
      {FrameType::kHello, "Hello"},
      {FrameType::kChallenge, "Challenge"},
      {FrameType::kProof, "Proof"},
      {FrameType::kWelcome, "Welcome"},
      {FrameType::kProgress, "Progress"},
      {FrameType::kStart, "Start"},
      {FrameType::kStartAcknowledged, "StartAcknowledged"},
      {FrameType::kHeartbeat, "Heartbeat"}};
  return names.at(c.cut.at) + (c.cut.after ? "After" + names.at(*c.cut.after) : "") + "Of" +
         std::to_string(c.world_size) + (c.cut.server_sees_it ? "" : "UnknownToTheServer");
}

std::vector<CutCase> cut_cases() {
  std::vector<CutCase> cases;
  for (const bool seen : {true, false}) {
    for (const FrameType type : {FrameType::kHello, FrameType::kChallenge, FrameType::kProof,
                                 FrameType::kWelcome, FrameType::kProgress, FrameType::kStart}) {
      cases.push_back({3, {type, seen}});
      // The last rank receives no progress.
      if (type != FrameType::kProgress) cases.push_back({2, {type, seen}});
    }
    for (const int ranks : {2, 3}) {
      cases.push_back({ranks, {FrameType::kStartAcknowledged, seen}});
      // Rank 0 has received the acknowledgement, and its answer is lost.
      cases.push_back({ranks, {FrameType::kHeartbeat, seen, FrameType::kStartAcknowledged}});
    }
  }
  return cases;
}

class Rejoin : public testing::TestWithParam<CutCase> {};

// Rank 1 comes through a proxy that cuts its first connection; of three ranks the last waits for
// it.
TEST_P(Rejoin, AfterItsConnectionBroke) {
  const auto& [world_size, cut] = GetParam();
  const Listener listener = open_listener();
  Proxy proxy(listener.port, cut);
  const auto errors = outcomes(world_size, [&, size = world_size, cut = cut](int rank) {
    GroupOptions o = options_for(rank, size, rank == 1 ? proxy.port() : listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    if (rank == 2) {
      // Progress is only sent while somebody is missing.
      const int connections = cut.at == FrameType::kProgress ? 2 : 1;
      EXPECT_TRUE(
          eventually([&] { return proxy.welcomes() > 0 && proxy.connections() >= connections; }));
    }
    JoinedStore joined = backends::join_store(o);
    EXPECT_EQ(joined.store->state().peers.size(), static_cast<std::size_t>(size));
    joined.store->set("from " + std::to_string(rank), "here");
    for (int r = 0; r < size; ++r)
      EXPECT_EQ(joined.store->get("from " + std::to_string(r), kTimeout), "here");
    joined.store->leave(kTimeout);
  });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(world_size)));
  EXPECT_EQ(proxy.connections(), 2);
}

INSTANTIATE_TEST_SUITE_P(CutAt, Rejoin, testing::ValuesIn(cut_cases()),
                         [](const auto& test) { return cut_name(test.param); });

// Shuts every TCP connection of this process with `port` at one end. Returns their number.
int shut_connections_with(int port) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        address.ss_family != AF_INET)
      continue;
    const bool is_listener = backends::peer_endpoint(fd).port == 0;
    if (is_listener ||
        (backends::local_endpoint(fd).port != port && backends::peer_endpoint(fd).port != port))
      continue;
    shutdown(fd, SHUT_RDWR);
    ++count;
  }
  return count;
}

// Rank 0 is a member of its own store, and a network that resets connections resets also those of
// one host.
TEST(BrokenConnections, EndNoRankNotEvenRank0) {
  const Listener listener = open_listener();
  std::atomic<int> joined{0}, shut{0};
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    JoinedStore store = backends::join_store(o);
    store.store->set("from " + std::to_string(rank), "here");
    (void)store.store->get("from " + std::to_string(1 - rank), kTimeout);
    ++joined;
    EXPECT_TRUE(eventually([&] { return joined == 2; }));
    if (rank == 0) shut = shut_connections_with(listener.port);
    EXPECT_TRUE(eventually([&] { return shut > 0; }));
    store.store->set("again from " + std::to_string(rank), "here");
    EXPECT_EQ(store.store->get("again from " + std::to_string(1 - rank), kTimeout), "here");
    store.store->leave(kTimeout);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Rank 1 has heard nothing and connects again: what was sent on the first connection arrives with
// the welcome on the second.
TEST(SilentConnections, ThatSpeakAgainAtTheLastMomentStay) {
  const Listener listener = open_listener();
  Proxy proxy(listener.port, std::nullopt);
  constexpr int kRounds = 5;
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, rank == 0 ? listener.port : proxy.port());
    if (rank == 0) o.listen.fd = listener.fd;
    o.heartbeat_ms = 100;
    JoinedStore joined = backends::join_store(o);
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = std::to_string(round) + " from ";
      joined.store->set(name + std::to_string(rank), "here");
      EXPECT_EQ(joined.store->get(name + std::to_string(1 - rank), kTimeout), "here");
      if (rank == 1) {
        proxy.hold();
        EXPECT_TRUE(eventually([&] { return !proxy.holds(); }));
      }
    }
    joined.store->leave(kTimeout);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_GT(proxy.connections(), 1);
}

// Runs rank 0 until the group fails and `until_then` returns; returns the failure, or "".
std::string rank_0_sees(const Listener& listener, int world_size,
                        const std::function<void()>& until_then) {
  GroupOptions o = options_for(0, world_size, listener.port);
  o.listen.fd = listener.fd;
  o.heartbeat_ms = 1000;  // so that three of them are well below kTimeout
  JoinedStore joined = backends::join_store(o);
  std::string failure =
      joined.store->wait_for_failure(kTimeout).value_or(backends::GroupFailure{}).text;
  until_then();
  return failure;
}

// Somebody on the way changes the first frame behind each welcome.
TEST(RejoinAgain, PausesBetweenAttempts) {
  const Listener listener = open_listener();
  Proxy proxy(listener.port, std::nullopt, 0, [](Frame& frame) {
    if (frame.type != FrameType::kStart && frame.type != FrameType::kProgress) return;
    frame.payload.back() = static_cast<char>(frame.payload.back() ^ 1);
  });
  std::atomic<bool> rank_1_ended{false};
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, rank == 0 ? listener.port : proxy.port());
    if (rank == 0) {
      o.listen.fd = listener.fd;
      JoinedStore joined = backends::join_store(o);
      EXPECT_TRUE(eventually([&] { return rank_1_ended.load(); }));
      return;
    }
    o.rendezvous_timeout_ms = test_support::deadline_ms(1500);
    try {
      backends::join_store(o);
    } catch (...) {
      rank_1_ended = true;
      throw;
    }
  });
  EXPECT_CONTAINS(errors[1], "peer: ");
  EXPECT_GT(proxy.connections(), 1);
  EXPECT_LT(proxy.connections(), 20 * test_support::time_scale());  // without pauses: hundreds
}

TEST(RejoinTooLate, IsRefusedAndTheOthersReportTheRankAsDead) {
  const Listener listener = open_listener();
  Proxy proxy(listener.port, Cut{FrameType::kStart});
  proxy.allow(1);
  std::atomic<bool> rank_1_heard{false};
  std::string failure;
  const auto errors = outcomes(2, [&](int rank) {
    if (rank == 0) {
      failure = rank_0_sees(listener, 2, [&] {
        proxy.allow(1000);  // including those that rank 1 has closed meanwhile
        EXPECT_TRUE(eventually([&] { return rank_1_heard.load(); }));
      });
      return;
    }
    GroupOptions o = options_for(1, 2, proxy.port());
    o.rendezvous_timeout_ms = static_cast<int>(kTimeout.count());
    try {
      backends::join_store(o);
    } catch (...) {
      rank_1_heard = true;
      throw;
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_CONTAINS(failure, "rank 1 ");
  EXPECT_CONTAINS(failure, "died: its connection closed");
  EXPECT_CONTAINS(errors[1], "peer: ");
  EXPECT_CONTAINS(errors[1], "declared dead");
}

// A client that claims to be rank 1 and joins step by step.
struct ManualClient {
  explicit ManualClient(const std::string& process, int world_size) {
    hello.rank = 1;
    hello.world_size = world_size;
    hello.pid = 4711;
    hello.process = process;
    hello.host = "n1";
    hello.host_id = backends::host_id();
    hello.settings_digest = backends::settings_digest({});
  }
  std::optional<backends::StoreSession> connect(int port) {
    std::string reason;
    ++hello.attempt;
    return backends::open_session(
        {"127.0.0.1", port}, backends::load_secret(group_harness::kSecret, ""), hello,
        base::deadline_in(kTimeout), backends::OtherServers::kNone, reason);
  }
  backends::Hello hello;
};

bool send_frame(backends::StoreSession& session, FrameWriter frame) {
  return backends::write_by(session.socket.fd(), session.seals.to_server.close(frame.finish()),
                            base::deadline_in(kTimeout));
}

bool started(backends::StoreSession& session) {
  while (const auto frame = read_frame(session.socket, session.parser)) {
    if (frame->type == FrameType::kStart) return true;
  }
  return false;
}

TEST(RejoinByAnother, IsRefusedBeforeTheStartIsAcknowledged) {
  const Listener listener = open_listener();
  std::string failure;
  std::thread rank_0([&] { failure = rank_0_sees(listener, 2, [] {}); });
  ManualClient first(backends::random_bytes(backends::kNonceBytes), 2),
      other(backends::random_bytes(backends::kNonceBytes), 2);
  other.hello.pid = 4712;
  {
    std::optional<backends::StoreSession> session = first.connect(listener.port);
    ASSERT_TRUE(session);
    ASSERT_TRUE(started(*session));
    try {
      (void)other.connect(listener.port);
      ADD_FAILURE() << "let in";
    } catch (const backends::MismatchError& error) {
      EXPECT_CONTAINS(error.what(), "rank 1 joined twice");
      EXPECT_CONTAINS(error.what(), "4711");
      EXPECT_CONTAINS(error.what(), "4712");
    }
  }
  EXPECT_THROW((void)other.connect(listener.port), backends::MismatchError);
  std::optional<backends::StoreSession> again =
      first.connect(listener.port);  // the rank was kept for it
  ASSERT_TRUE(again);
  EXPECT_TRUE(started(*again));
  ASSERT_TRUE(send_frame(*again, FrameWriter(FrameType::kStartAcknowledged).i32(0)));
  ASSERT_TRUE(send_frame(*again, FrameWriter(FrameType::kAbandon).u8(0).text("its disk is full")));
  rank_0.join();
  EXPECT_CONTAINS(failure, "ended before the others: its disk is full");
}

TEST(RejoinAfterTheStartWasAcknowledged, IsRefused) {
  const Listener listener = open_listener();
  std::string failure;
  std::atomic<bool> tried{false};
  std::thread rank_0([&] {
    failure =
        rank_0_sees(listener, 2, [&] { EXPECT_TRUE(eventually([&] { return tried.load(); })); });
  });
  ManualClient client(backends::random_bytes(backends::kNonceBytes), 2);
  {
    std::optional<backends::StoreSession> session = client.connect(listener.port);
    ASSERT_TRUE(session);
    ASSERT_TRUE(started(*session));
    ASSERT_TRUE(send_frame(*session, FrameWriter(FrameType::kStartAcknowledged).i32(0)));
  }
  EXPECT_THROW((void)client.connect(listener.port), backends::MismatchError);
  tried = true;
  rank_0.join();
  EXPECT_CONTAINS(failure, "died: its connection ");  // closed, or reset with bytes unread
}

TEST(RejoinLeaving, BeforeTheStartIsAcknowledgedEndsTheGroup) {
  const Listener listener = open_listener();
  std::string failure;
  std::thread rank_0([&] { failure = rank_0_sees(listener, 2, [] {}); });
  ManualClient client(backends::random_bytes(backends::kNonceBytes), 2);
  std::optional<backends::StoreSession> session = client.connect(listener.port);
  ASSERT_TRUE(session);
  ASSERT_TRUE(started(*session));
  ASSERT_TRUE(send_frame(*session, FrameWriter(FrameType::kLeave).text("")));
  rank_0.join();
  EXPECT_CONTAINS(failure, "ended before the others");
}

// A delayed connection does not replace a later one of the same process.
TEST(RejoinOutOfOrder, TheLaterAttemptStays) {
  const Listener listener = open_listener();
  ManualClient client(backends::random_bytes(backends::kNonceBytes), 3);
  const auto errors = outcomes(3, [&](int rank) {
    if (rank == 2) return;
    if (rank == 0) {
      GroupOptions o = options_for(0, 3, listener.port);
      o.listen.fd = listener.fd;
      EXPECT_NO_THROW(backends::join_store(o).store->leave(kTimeout));
      return;
    }
    client.hello.attempt = 7;
    std::optional<backends::StoreSession> later = client.connect(listener.port);
    ASSERT_TRUE(later);
    client.hello.attempt = 3;
    EXPECT_FALSE(client.connect(listener.port));
    GroupOptions last = options_for(2, 3, listener.port);
    JoinedStore joined = backends::join_store(last);
    EXPECT_TRUE(started(*later));
    for (const FrameType type : {FrameType::kStartAcknowledged, FrameType::kLeave}) {
      EXPECT_TRUE(send_frame(*later, FrameWriter(type).i32(0)));
    }
    joined.store->leave(kTimeout);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// An eavesdropper knows the process's nonce and an old proof, but cannot answer a new challenge.
TEST(RejoinByAnEavesdropper, IsRefusedAndDisturbsNoRank) {
  const Listener listener = open_listener();
  Proxy proxy(listener.port, std::nullopt);
  std::atomic<bool> refused{false};
  const auto errors = outcomes(3, [&](int rank) {
    GroupOptions o = options_for(rank, 3, rank == 1 ? proxy.port() : listener.port);
    if (rank == 0) o.listen.fd = listener.fd;
    if (rank == 2) {
      EXPECT_TRUE(eventually([&] { return proxy.welcomes() > 0; }));
      const Socket socket = connect_to_port(listener.port);
      backends::FrameParser parser;
      const auto until = base::deadline_in(kTimeout);
      EXPECT_TRUE(backends::write_by(socket.fd(), proxy.recorded(FrameType::kHello), until));
      const auto challenge = read_frame(socket, parser);
      EXPECT_TRUE(challenge && challenge->type == FrameType::kChallenge);
      EXPECT_TRUE(backends::write_by(socket.fd(), proxy.recorded(FrameType::kProof), until));
      const auto verdict = read_frame(socket, parser);
      EXPECT_TRUE(verdict && verdict->type == FrameType::kRefuse &&
                  static_cast<backends::RefusalKind>(verdict->payload[0]) ==
                      backends::RefusalKind::kAuthentication);
      refused = true;
    }
    JoinedStore joined = backends::join_store(o);
    joined.store->leave(kTimeout);
  });
  EXPECT_TRUE(refused);
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_EQ(proxy.connections(), 1) << "rank 1 was disturbed";
}

}  // namespace
