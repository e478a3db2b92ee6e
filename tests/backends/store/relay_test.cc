// A process without the secret that carries a rank's connection to the store: it took the port
// first, or sits on the way.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "backends/identity/join.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/store/store_proxy.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/time_limits.h"

namespace {

using backends::Frame;
using backends::FrameType;
using backends::GroupOptions;
using backends::JoinedStore;
using group_harness::open_listener;
using group_harness::options_for;
using group_harness::outcomes;
using group_harness::Proxy;
using test_support::free_port;

// Whoever listens on [::1] is not asked to carry what is meant for 127.0.0.1.
TEST(Relay, OnTheOtherLoopbackAddressIsNotReached) {
  const std::vector<backends::Endpoint> all = backends::resolve({"localhost", 29500});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(to_string(all.front()), "127.0.0.1:29500");
}

// With a job id rank 0 takes the next port when the first is taken, and others may have taken it to
// pass on what they hear.
TEST(Relay, OnAnEarlierPortOfTheWindowIsPassedOver) {
  const group_harness::Listener server = open_listener();
  const int server_port = server.port;
  // The window must begin with the relay's port and reach the server's.
  int relay_port = 0;
  for (int port = server_port - 1; port > server_port - 16 && relay_port == 0; --port) {
    try {
      backends::listen_on({"127.0.0.1", port}, std::chrono::milliseconds(0));
      relay_port = port;
    } catch (const backends::Error&) {
      // Taken.
    }
  }
  ASSERT_NE(relay_port, 0);
  Proxy relay(server_port, std::nullopt, relay_port);
  std::mutex mutex;
  std::string notices;
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, relay_port);
    o.job.id = "job " + std::to_string(getpid());
    o.listen.port_window = 16;
    if (rank == 0) {
      o.listen.fd = server.fd;
      o.notice = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        notices += line + "\n";
      };
    }
    JoinedStore joined = backends::join_store(o);
    if (rank == 1) {
      EXPECT_EQ(joined.rendezvous_address, "127.0.0.1:" + std::to_string(server_port));
    }
    joined.store->leave(test_support::deadline(std::chrono::seconds(5)));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_GE(relay.connections(), 1);
  EXPECT_EQ(relay.welcomes(), 0);
  EXPECT_CONTAINS(notices, "was relayed from port " + std::to_string(relay_port) + " to port " +
                               std::to_string(server_port));
}

// Joins through a relay that changes a byte of frames of this type in the first `connections`.
std::vector<std::string> join_through(FrameType type, int connections, std::string& notices) {
  const group_harness::Listener server = open_listener();
  std::atomic<int> changed = 0;
  Proxy relay(server.port, std::nullopt, 0, [&](Frame& frame) {
    if (frame.type == type && changed++ < connections) frame.payload.back() ^= 1;
  });
  std::mutex mutex;
  return outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, rank == 0 ? server.port : relay.port());
    if (rank == 0) o.listen.fd = server.fd;
    o.rendezvous_timeout_ms = test_support::deadline_ms(connections == 1 ? 30'000 : 500);
    o.notice = [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      notices += line + "\n";
    };
    JoinedStore joined = backends::join_store(o);
    joined.store->leave(test_support::deadline(std::chrono::seconds(5)));
  });
}

TEST(Relay, ThatChangesAByteOfTheHandshakeOnceEndsNothing) {
  for (const FrameType type : {FrameType::kHello, FrameType::kChallenge, FrameType::kProof}) {
    std::string notices;
    EXPECT_EQ(join_through(type, 1, notices), std::vector<std::string>(2))
        << static_cast<int>(type) << ": " << notices;
  }
}

TEST(Relay, ThatChangesTheHandshakeAlwaysIsSaidWithWhatIsKnown) {
  std::string notices;
  const auto errors = join_through(FrameType::kHello, 1'000'000, notices);
  EXPECT_VALUES(errors[1], "authentication: 127.0.0.1: secret (from this process): changed");
  EXPECT_CONTAINS(errors[0], "missing 1 of 2 ranks: 1");
}

// As an address that rank 0 published for rank 1's connections: the relay cannot read it either.
TEST(Relay, ThatChangesAValueEndsTheGroup) {
  const group_harness::Listener server = open_listener();
  const std::string sent = "address 127.0.0.1:2000";
  std::atomic<int> readable = 0, replies = 0;
  Proxy relay(server.port, std::nullopt, 0, [&](Frame& frame) {
    if (frame.payload.find("127.0.0.1") != std::string::npos) ++readable;
    if (frame.type != FrameType::kReply) return;
    ++replies;
    frame.payload.back() = static_cast<char>(frame.payload.back() ^ 1);
  });
  std::string value;
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, rank == 0 ? server.port : relay.port());
    if (rank == 0) o.listen.fd = server.fd;
    JoinedStore joined = backends::join_store(o);
    if (rank == 0) joined.store->set("key", sent);
    value = rank == 1 ? joined.store->get("key", group_harness::kProxyTimeout) : value;
    if (rank == 0) (void)joined.store->wait_for_failure(group_harness::kProxyTimeout);
  });
  EXPECT_EQ(value, "");
  EXPECT_CONTAINS(errors[1], "damaged or forged");
  EXPECT_EQ(replies, 1);
  EXPECT_EQ(readable, 0);
}

TEST(Relay, ThatChangesWhatARankSendsEndsTheGroup) {
  const group_harness::Listener server = open_listener();
  Proxy relay(server.port, std::nullopt, 0, [&](Frame& frame) {
    if (frame.type == FrameType::kSet) frame.payload[5] = static_cast<char>(frame.payload[5] ^ 1);
  });
  std::string failure;
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options_for(rank, 2, rank == 0 ? server.port : relay.port());
    o.links.patience_ms = 0;  // no new connection through the relay
    if (rank == 0) o.listen.fd = server.fd;
    JoinedStore joined = backends::join_store(o);
    if (rank == 1) joined.store->set("key", "value");
    if (rank == 0)
      failure = joined.store->wait_for_failure(group_harness::kProxyTimeout)
                    .value_or(backends::GroupFailure{})
                    .text;
  });
  EXPECT_CONTAINS(failure, "rank 1 ");
  EXPECT_CONTAINS(failure, "damaged or forged");
  EXPECT_CONTAINS(errors[1], "peer: rank 0 (");
}

}  // namespace
