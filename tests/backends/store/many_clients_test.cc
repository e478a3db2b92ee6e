// The real store with 1,000 clients: joining, a death that all are told of, and leaving.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/store/protocol/member_machine.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/store_server.h"
#include "io/base/time/deadline.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::Hello;
using backends::MemberMachine;
using backends::Secret;
using backends::SessionMachine;
using Clock = std::chrono::steady_clock;

constexpr int kClients = 1000;
// ms; so long that nobody seems dead where all clients share a slow thread.
constexpr int kHeartbeat = 60'000;

Hello hello_of(int rank) {
  Hello hello;
  hello.rank = rank;
  hello.world_size = kClients;
  hello.pid = 1000 + rank;
  hello.process = backends::random_bytes(backends::kNonceBytes);
  hello.job = "many clients";
  hello.host = "node" + std::to_string(rank / 8);
  hello.settings_digest = backends::settings_digest({});
  return hello;
}

// A socket with the machines of a rank, without a thread.
class LightClient {
 public:
  LightClient(const backends::Endpoint& server, const Secret& secret, int rank)
      : session_(std::in_place, secret, hello_of(rank),
                 backends::random_bytes(backends::kNonceBytes), "the server") {
    std::string reason;
    connection_.socket = connect_to(server, base::deadline_in(test_support::deadline(30s)), reason);
    EXPECT_TRUE(connection_.socket) << reason;
    send();
  }

  pollfd polled() const {
    const bool waits = !connection_.out.empty();
    return {connection_.socket.fd(), static_cast<short>(POLLIN | (waits ? POLLOUT : 0)), 0};
  }
  void receive() {
    std::string bytes;
    const std::string end = connection_.receive(bytes);
    if (session_) {
      session_->received(bytes);
      if (session_->state() == SessionMachine::State::kWelcome) {
        member_.emplace(std::move(session_->parser()), std::move(session_->seals()), kHeartbeat,
                        Clock::now());
        session_.reset();
        member_->received({}, Clock::now());
      }
    } else if (!bytes.empty()) {
      member_->received(bytes, Clock::now());
    }
    if (!end.empty() && member_) member_->closed(end);
    send();
  }
  void tick() {
    if (!member_) return;
    member_->tick(Clock::now());
    if (member_->heartbeat_due(Clock::now())) member_->heartbeat({}, Clock::now());
    send();
  }
  void leave() {
    member_->leave();
    send();
  }
  void die() { connection_.socket.close(); }

  bool is_gone() const { return !connection_.socket; }
  const MemberMachine* member() const { return member_ ? &*member_ : nullptr; }

 private:
  void send() {
    if (is_gone()) return;
    connection_.out += session_ ? session_->take_output() : member_->take_output();
    connection_.flush();
    if (member_ && connection_.out.empty()) member_->sent();
  }

  backends::StoreConnection connection_;
  std::optional<SessionMachine> session_;
  std::optional<MemberMachine> member_;
};

class ManyClients : public ::testing::Test {
 protected:
  void SetUp() override {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < 2 * kClients + 100) GTEST_SKIP() << "needs 2,100 open files";
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    backends::StoreServerOptions options;
    options.listener = backends::listen_on({"127.0.0.1", 0});
    options.secret = secret_;
    options.job = hello_of(0);
    options.heartbeat_ms = kHeartbeat;
    server_.emplace(std::move(options));
    const auto start = Clock::now();
    // A server bounds the connections that have proved nothing yet.
    for (int rank = 0; rank < kClients; ++rank) {
      clients_.push_back(std::make_unique<LightClient>(server_->endpoint(), secret_, rank));
      if (clients_.size() % (backends::kMaxUnauthenticated / 2) == 0) {
        ASSERT_TRUE(until([](const MemberMachine&) { return true; }));
      }
    }
    ASSERT_TRUE(until([](const MemberMachine& m) { return m.state().started; }));
    std::printf("%d clients joined in %.2f s\n", kClients, base::seconds_since(start));
  }

  // Runs all clients until each that lives is as wanted.
  template <typename Wanted>
  bool until(Wanted wanted) {
    const base::Deadline deadline = base::deadline_in(test_support::deadline(30s));
    while (!base::has_passed(deadline)) {
      std::vector<pollfd> polled;
      bool all = true;
      for (const auto& client : clients_) {
        polled.push_back(client->polled());
        const MemberMachine* member = client->member();
        all = all && (client->is_gone() || (member != nullptr && wanted(*member)));
      }
      if (all) return true;
      poll(polled.data(), polled.size(), 50);
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (clients_[i]->is_gone()) continue;
        if (polled[i].revents != 0) clients_[i]->receive();
        clients_[i]->tick();
      }
    }
    return false;
  }

  Secret secret_{"a secret of the test", "the test"};
  std::optional<backends::StoreServer> server_;
  std::vector<std::unique_ptr<LightClient>> clients_;
};

TEST_F(ManyClients, JoinAndLeave) {
  for (const auto& client : clients_)
    ASSERT_EQ(client->member()->state().peers.size(), std::size_t{kClients});
  const auto start = Clock::now();
  for (const auto& client : clients_) client->leave();
  ASSERT_TRUE(until([](const MemberMachine& m) { return m.state().left; }));
  std::printf("all left in %.2f s\n", base::seconds_since(start));
}

TEST_F(ManyClients, AreToldOfADeath) {
  const auto start = Clock::now();
  clients_[500]->die();
  ASSERT_TRUE(until([](const MemberMachine& m) { return m.state().failure.has_value(); }));
  std::printf("a death was told to all in %.2f s\n", base::seconds_since(start));
  for (const auto& client : clients_) {
    if (client->is_gone()) continue;
    ASSERT_EQ(client->member()->state().failure->rank, 500);
    ASSERT_NE(client->member()->state().failure->what.text.find("rank 500 (host node62"),
              std::string::npos)
        << client->member()->state().failure->what.text;
  }
}

}  // namespace
