// Connections between ranks through a relay, where direct ones do not come about.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <list>
#include <memory>
#include <optional>
#include <random>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "backends/relay/relay_route.h"
#include "backends/secure/record_cipher.h"
#include "backends/transport/socket/mesh_proof.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/relay/relay_client.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"

namespace {

using backends::BackendContext;
using backends::LinkCipher;
using backends::RelayRoute;
using link_job::Job;
using relay_client::Relay;

constexpr const char* kElsewhere = "127.0.0.9";

// The behavior of a rank's address towards the others.
enum class Block { kNone, kRefuses, kSilent, kTakesAll, kLies };

std::vector<const backends::Backend*> mesh_backends() {
  std::vector<const backends::Backend*> found;
  for (const backends::Backend& b : backends::all_backends()) {
    if (b.usable && b.relays) found.push_back(&b);
  }
  return found;
}

// A job whose ranks are not where the store says: another host has their address and port.
class BlockedJob {
 public:
  // `open`: the rank that all others reach.
  BlockedJob(Block block, int open) : block_(block), open_("/socket/" + std::to_string(open)) {
    if (block == Block::kNone) return;
    job.store.seen = [this](const std::string& key, const std::string& value) {
      if (is_blocked(key)) occupy(backends::parse_endpoint(value, "test").port);
    };
    job.store.change = [this](const std::string& key, const std::string& value) {
      return is_blocked(key) ? to_string(backends::Endpoint{
                                   kElsewhere, backends::parse_endpoint(value, "test").port})
                             : value;
    };
  }
  ~BlockedJob() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BlockedJob(const BlockedJob&) = delete;
  BlockedJob& operator=(const BlockedJob&) = delete;

  Job job;

 private:
  bool is_blocked(const std::string& key) const {
    return key.find("/socket/") != key.npos && !key.ends_with("/relayed") && !key.ends_with(open_);
  }
  // In a rank's thread, before others learn of its port.
  void occupy(int port) {
    if (block_ == Block::kRefuses) return;
    const std::lock_guard lock(mutex_);
    backends::Socket& listener = sockets_.emplace_back(backends::listen_on({kElsewhere, port}));
    if (block_ == Block::kSilent) {
      listen(listener.fd(), 0);  // full with one: what else is sent to connect is lost
      sockets_.push_back(relay_client::connect_to({kElsewhere, port}));
    }
    if (block_ == Block::kLies) threads_.emplace_back([this, fd = listener.fd()] { lie(fd); });
  }
  void lie(int listener) {
    const std::string noise(sizeof(backends::MeshChallenge), '!');
    std::list<backends::Socket> accepted;
    while (!stopping_) {
      pollfd p{listener, POLLIN, 0};
      if (poll(&p, 1, 5) <= 0) continue;
      accepted.emplace_back(accept(listener, nullptr, nullptr));
      [[maybe_unused]] const ssize_t n =
          send(accepted.back().fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
    }
  }

  const Block block_;
  const std::string open_;
  std::mutex mutex_;
  std::list<backends::Socket> sockets_;
  std::list<std::thread> threads_;
  std::atomic<bool> stopping_{false};
};

struct Sums {
  std::vector<std::string> errors;
  std::vector<std::vector<float>> values;  // of each rank
  std::vector<std::string> notices;        // of rank 0
  std::vector<std::unique_ptr<RelayRoute>> routes;
};

struct Case {
  Block block = Block::kNone;
  LinkCipher cipher = LinkCipher::kNone;
  int streams = 1, world_size = 3;
};

// Ranks sum random numbers.
Sums sums(const backends::Backend& backend, const Case& of, const backends::Endpoint* relay) {
  BlockedJob blocked(of.block, 0);
  const auto ranks = static_cast<std::size_t>(of.world_size);
  Sums made{.errors = {},
            .values = std::vector<std::vector<float>>(ranks),
            .notices = {},
            .routes = std::vector<std::unique_ptr<RelayRoute>>(ranks)};
  std::vector<std::unique_ptr<backends::Communicator>> communicators(ranks);
  made.errors = group_harness::outcomes(of.world_size, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    BackendContext context = blocked.job.context(rank, of.world_size);
    for (int& member : context.members) member -= 10;  // rank 0 is the group's
    context.cipher = of.cipher;
    context.streams = of.streams;
    if (rank == 0) context.notice = [&](const std::string& line) { made.notices.push_back(line); };
    if (relay != nullptr)
      made.routes[r] = std::make_unique<RelayRoute>(*relay, relay_client::kSecret, "night");
    context.relay = made.routes[r].get();
    communicators[r] = backend.create(context);
    std::mt19937 random(static_cast<unsigned>(rank));
    std::normal_distribution<float> normal;
    std::vector<float>& values = made.values[r];
    values.resize(300'001);
    for (float& v : values) v = normal(random);
    communicators[r]->all_reduce(values.data(), values.size(), base::DType::kF32,
                                 backends::ReduceOp::kSum);
    communicators[r]->barrier();
  });
  communicators.clear();
  if (relay == nullptr) {
    EXPECT_EQ(blocked.job.store.size(), 0u);
  }
  return made;
}

const std::vector<std::string> kNoErrors(3);

std::size_t joined_pairs(const Relay& relay) {
  const auto lines = relay.reports();
  return static_cast<std::size_t>(std::ranges::count_if(lines, [](const std::string& line) {
    return line.find("job night: ranks 1 and 2 are joined") == 0;
  }));
}

TEST(RelayedLinks, HaveTheBitsOfDirectOnes) {
  for (const backends::Backend* backend : mesh_backends()) {
    const Sums direct = sums(*backend, {}, nullptr);
    ASSERT_EQ(direct.errors, kNoErrors);
    for (const auto& [block, cipher] : {std::pair{Block::kRefuses, LinkCipher::kNone},
                                        {Block::kSilent, backends::fastest_cipher()},
                                        {Block::kTakesAll, LinkCipher::kNone},
                                        {Block::kLies, backends::fastest_cipher()}}) {
      const Relay relay;
      const backends::Endpoint at = relay.endpoint();
      const Sums relayed = sums(*backend, {.block = block, .cipher = cipher}, &at);
      ASSERT_EQ(relayed.errors, kNoErrors) << backend->name << static_cast<int>(block);
      EXPECT_TRUE(relayed.values == direct.values) << backend->name << static_cast<int>(block);
      EXPECT_EQ(joined_pairs(relay), 1u) << backend->name << static_cast<int>(block);
      EXPECT_LINES(relayed.notices, "2 direct 1 relay " + to_string(at) + " 1-2");
      EXPECT_FALSE(relayed.routes[2]->was_relayed(0));
      EXPECT_TRUE(relayed.routes[2]->was_relayed(1));
      EXPECT_TRUE(relayed.routes[1]->was_relayed(2));
    }
  }
}

// The injected fault is one: without a relay the job does not come about.
TEST(RelayedLinks, WithoutARelayTheMessageNamesIt) {
  BlockedJob blocked(Block::kRefuses, -1);
  Job& job = blocked.job;
  job.timeout = test_support::deadline(std::chrono::seconds(1));
  const auto errors = group_harness::outcomes(
      2, [&](int rank) { mesh_backends().front()->create(job.context(rank, 2)); });
  EXPECT_CONTAINS(errors[1], "no connection with rank 10; 127.0.0.9:");
  EXPECT_VALUES(errors[1], "rank 0 --relay rank0:PORT");
}

TEST(RelayedLinks, AllStreamsOfAPairFindEachOther) {
  for (const backends::Backend* backend : mesh_backends()) {
    const Relay relay;
    const backends::Endpoint at = relay.endpoint();
    const Sums direct = sums(*backend, {.streams = 3}, nullptr);
    const Sums relayed = sums(*backend, {.block = Block::kSilent, .streams = 3}, &at);
    ASSERT_EQ(relayed.errors, kNoErrors) << backend->name;
    EXPECT_TRUE(relayed.values == direct.values) << backend->name;
    EXPECT_EQ(joined_pairs(relay),
              std::string(backend->name) == "socket" ? 3u : 1u);  // gloo has one
  }
}

TEST(RelayedLinks, ADirectConnectionIsPreferred) {
  const Relay relay;
  const backends::Endpoint at = relay.endpoint();
  const Sums made = sums(*mesh_backends().front(), {}, &at);
  ASSERT_EQ(made.errors, kNoErrors);
  EXPECT_TRUE(relay.reports().empty());
  EXPECT_LINES(made.notices, "3 direct 0 relay " + to_string(at));
}

TEST(RelayedLinks, AreReportedOnceForAllRanks) {
  RelayRoute route({"127.0.0.1", 9}, relay_client::kSecret, "night");
  EXPECT_TRUE(route.is_new_report(2, "pair"));
  EXPECT_TRUE(route.is_new_report(3, "all"));
  EXPECT_FALSE(route.is_new_report(3, "all"));
  EXPECT_FALSE(route.is_new_report(2, "pair"));
  EXPECT_TRUE(route.is_new_report(3, "changed"));
  EXPECT_VALUES(backends::links_text(3, {{1, 2}}, {"::1", 9}),
                "2 direct, 1 relay [::1]:9 (ranks 1-2)");
  std::set<std::pair<int, int>> many;
  for (int rank = 1; rank < 8; ++rank) many.emplace(0, rank);
  const std::string text = backends::links_text(8, many, {"10.0.0.1", 9});
  EXPECT_VALUES(text, "21 direct, 7 relay 10.0.0.1:9");
  EXPECT_TRUE(text.ends_with(":9")) << text;
}

// Not even its port is open.
TEST(RelayedLinks, DirectPairsDoNotNeedTheRelay) {
  const backends::Endpoint nowhere{"127.0.0.1", test_support::free_port()};
  EXPECT_EQ(sums(*mesh_backends().front(), {}, &nowhere).errors, kNoErrors);
}

// Returns the error of a rank whose peer never connects. The test's clock reaches `timeout` within
// about a second.
std::vector<std::string> errors_with(const backends::Endpoint& at, const backends::Secret& secret,
                                     std::optional<std::chrono::seconds> timeout = {}) {
  BlockedJob blocked(Block::kNone, 0);
  Job& job = blocked.job;
  job.timeout = test_support::deadline(std::chrono::seconds(1));
  if (timeout) {
    job.timeout = *timeout;
    job.clock = &job.test_clock;
  }
  const test_support::PassingTime time(job.test_clock, job.timeout / 100, [] { return true; });
  for (const char* name : {"mesh/socket/0", "mesh/gloo/socket/0"})
    job.store.set(name, to_string(backends::Endpoint{kElsewhere, 9}));
  RelayRoute route(at, secret, "night");
  route.note_relayed(10);  // goes there at once
  return group_harness::outcomes(1, [&](int) {
    BackendContext context = job.context(1, 2);
    context.relay = &route;
    mesh_backends().front()->create(context);
  });
}

TEST(RelayedLinks, AProcessWithoutTheSecretIsNoRelay) {
  const Relay relay;
  EXPECT_VALUES(errors_with(relay.endpoint(), {std::string(32, 'x'), "elsewhere"})[0],
                "authentication: " + to_string(relay.endpoint()) + " relay secret elsewhere");
}

TEST(RelayedLinks, ATimeoutNamesTheRelay) {
  const Relay relay;
  EXPECT_VALUES(errors_with(relay.endpoint(), relay_client::kSecret)[0],
                "rank 10; relay " + to_string(relay.endpoint()) + " waited other end");
  const backends::Endpoint nowhere{"127.0.0.1", test_support::free_port()};
  EXPECT_VALUES(errors_with(nowhere, relay_client::kSecret, std::chrono::seconds(5))[0],
                "timeout 5000 ms, rank 10; no answer relay " + to_string(nowhere));
}

// Also if the timeout is much longer.
TEST(RelayedLinks, ARelayThatHasEndedIsGivenUp) {
  const backends::Endpoint nowhere{"127.0.0.1", test_support::free_port()};
  EXPECT_VALUES(errors_with(nowhere, relay_client::kSecret, std::chrono::seconds(300))[0],
                "rank 10 relay " + to_string(nowhere) + " 20 s");
}

// ---- Groups.

std::vector<std::string> group_errors(const std::string& backend, int relay_port,
                                      std::vector<std::string>& notices) {
  const group_harness::Listener listener = group_harness::open_listener();
  return group_harness::outcomes(2, [&](int rank) {
    backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
    o.backend = backend;
    o.listen.relay = backends::RelayPlace{backends::RelayPlace::kRankZero, relay_port};
    if (rank == 0) {
      o.listen.fd = listener.fd;
      o.notice = [&](const std::string& line) { notices.push_back(line); };
    }
    const auto group = backends::join_group(o);
    EXPECT_CONTAINS(
        group->backend_reason(),
        "links encrypted (" + to_string(backends::fastest_cipher()) + "): --relay joins networks");
    {
      const auto communicator = group->make_communicator();
      if (rank == 1) {  // rank 0's process relays
        const backends::Socket probe = relay_client::connect_to({"127.0.0.1", relay_port});
        EXPECT_TRUE(probe);
      }
      communicator->barrier();
    }
    group->leave();
  });
}

TEST(RelayedLinks, RankZeroRelaysForItsGroup) {
  for (const backends::Backend* backend : mesh_backends()) {
    const int port = test_support::free_port();
    std::vector<std::string> notices;
    EXPECT_EQ(group_errors(backend->name, port, notices), std::vector<std::string>(2));
    EXPECT_LINES(notices, "1 direct 0 relay 127.0.0.1:" + std::to_string(port));
  }
}

TEST(RelayedLinks, ABackendWithoutMeshConnectionsIsRejected) {
  for (const backends::Backend& b : backends::all_backends()) {
    if (std::string(b.name) != "zmq" || !b.usable) continue;
    const group_harness::Listener listener = group_harness::open_listener();
    const int port = test_support::free_port();
    std::unique_ptr<backends::Group> groups[2];  // a rank that left would be named by the other
    const auto errors = group_harness::outcomes(2, [&](int rank) {
      backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
      o.backend = "zmq";
      o.listen.relay = backends::RelayPlace{backends::RelayPlace::kRankZero, port};
      if (rank == 0) o.listen.fd = listener.fd;
      auto& group = groups[static_cast<std::size_t>(rank)];
      group = backends::join_group(o);
      group->make_communicator();
    });
    for (const std::string& error : errors)
      EXPECT_VALUES(error, "configuration: zmq --relay: gloo, socket shm");
  }
}

}  // namespace
