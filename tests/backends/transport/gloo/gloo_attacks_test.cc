// Attacks on the gloo backend: connections without the secret cost no set-up and reach no code of
// Gloo's, and wrong bytes on an established connection end in one line, with nothing written.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/store/tcp_socket.h"
#include "backends/transport/gloo/gloo_backend.h"
#include "backends/transport/gloo/gloo_transport.h"
#include "backends/transport/socket/mesh_proof.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/backends/transport/link_job.h"
#include "tests/backends/transport/link_relay.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::BackendContext;
using backends::Socket;
using link_job::ChangedByte;
using link_job::Job;
using link_job::LinkRelay;
using link_job::sums;
using link_job::Way;

constexpr int kSetUps = 100;

// The message that Gloo's own TCP transport takes before any proof.
struct Preamble {
  std::size_t bytes = sizeof(Preamble), opcode = 0, slot = 0, offset = 0, length = 0, roffset = 0;
};
std::string preamble(std::size_t length, std::size_t roffset) {
  Preamble p;
  p.length = length;
  p.roffset = roffset;
  p.bytes += length;
  std::string text(reinterpret_cast<const char*>(&p), sizeof p);
  return text + std::string(std::min<std::size_t>(length, 8192), 'x');
}

std::string greeting(int port) {
  const backends::MeshHello hello = backends::make_hello(1, 0, 0, 1, port);
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello) +
         std::string(backends::kMacBytes, 'x');
}

int port_in(const std::string& endpoint) {
  return backends::parse_endpoint(endpoint, "a rank's address").port;
}

// What a peer without the secret sends to a rank's port; it connects before any rank does.
struct Attack {
  const char* name;
  std::string (*bytes)(int port);
  bool stays;
};
void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

class GlooAttacks : public testing::TestWithParam<Attack> {};

TEST_P(GlooAttacks, CostNoSetUp) {
  const Attack& attack = GetParam();
  int failed = 0;
  std::string first_error;
  for (int number = 0; number < kSetUps; ++number) {
    Job job;
    std::mutex mutex;
    std::vector<Socket> held;
    std::vector<std::string> keys;
    job.store.seen = [&](const std::string& key, const std::string& value) {
      Socket socket = group_harness::connect_to_port(port_in(value));
      const std::string bytes = attack.bytes(port_in(value));
      (void)send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      const std::lock_guard lock(mutex);
      keys.push_back(key);
      if (attack.stays) held.push_back(std::move(socket));
    };
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& error : sums(job, 3, backends::make_gloo_communicator)) {
      if (error.empty()) continue;
      ++failed;
      if (first_error.empty()) first_error = error;
    }
    EXPECT_FALSE(test_support::is_past(begin, std::chrono::seconds(9)))
        << "it waited for an attacker";
    std::ranges::sort(keys);  // the attacked ports are all that there are
    EXPECT_EQ(keys, (std::vector<std::string>{"mesh/gloo/socket/0", "mesh/gloo/socket/1"}));
    EXPECT_EQ(job.store.size(), 0u) << "keys are left behind";
  }
  EXPECT_EQ(failed, 0) << first_error;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GlooAttacks,
    testing::Values(
        Attack{"WildOffset", [](int) { return preamble(64, std::size_t{1} << 51); }, true},
        Attack{"WrappingOffset",
               [](int) { return preamble(4104, static_cast<std::size_t>(-4096)); }, true},
        Attack{"Scan", [](int) { return std::string(); }, false},
        Attack{"WebRequest", [](int) { return std::string("GET / HTTP/1.0\r\n\r\n"); }, true},
        Attack{"Greeting", greeting, true}, Attack{"PassingGreeting", greeting, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(GlooLinks, ARankWithAnotherSecretIsNotLetIn) {
  Job job;
  const auto errors = link_job::errors_with_another_secret(job, backends::make_gloo_communicator);
  EXPECT_CONTAINS(errors[0], "no connection with rank 11");
  EXPECT_VALUES(errors[1], "rank 10 secret");
}

// Two ranks connect over a relay and sum, one float each.
class GlooOverRelay : public testing::Test {
 protected:
  static constexpr std::size_t kSetUp[] = {
      sizeof(backends::MeshHello) + backends::kMacBytes + 1,
      sizeof(backends::MeshChallenge) + sizeof(backends::MeshWelcome)};  // bytes each way
  static std::size_t set_up_bytes(Way way) { return kSetUp[way == Way::kToListener ? 0 : 1]; }

  std::vector<std::string> sums_with(ChangedByte changed) {
    Job job;
    std::unique_ptr<LinkRelay> relay;
    job.store.seen = [&](const std::string&, const std::string& value) {
      relay = std::make_unique<LinkRelay>(port_in(value), changed);
    };
    job.store.change = [](const std::string&, const std::string& value) {
      return LinkRelay::kHost + (":" + std::to_string(port_in(value)));
    };
    std::vector<std::unique_ptr<backends::Communicator>> made(2);
    const auto errors = group_harness::outcomes(2, [&](int rank) {
      auto& communicator = made[static_cast<std::size_t>(rank)];
      communicator = backends::make_gloo_communicator(job.context(rank, 2));
      std::vector<float> values(kValues, static_cast<float>(rank + 1));
      try {
        for (int call = 0; call < 3; ++call) {
          communicator->all_reduce(values.data(), values.size(), base::DType::kF32,
                                   backends::ReduceOp::kMax);
          EXPECT_EQ(values, std::vector<float>(kValues, 2.f));
        }
      } catch (...) {
        communicator.reset();  // at once, so that the other rank sees its end
        throw;
      }
    });
    EXPECT_TRUE(relay->has_changed()) << "byte " << changed.at;
    return errors;
  }
  static constexpr std::size_t kValues = 40'000;  // blocks: the shares do not fit beside the words
};

TEST_F(GlooOverRelay, AChangedByteCostsNoSetUp) {
  int failed = 0;
  for (const Way way : {Way::kToListener, Way::kToConnector}) {
    for (std::size_t at = 0; at < set_up_bytes(way); at += 2) {
      const auto errors = sums_with({way, at});
      for (const std::string& error : errors) EXPECT_EQ(error, "") << "byte " << at;
      failed += errors == std::vector<std::string>(2) ? 0 : 1;
    }
  }
  EXPECT_EQ(failed, 0);
}

// Frame, word and payload of the first message.
TEST_F(GlooOverRelay, AChangedByteOfAMessageEndsInOneLineThatNamesThePeer) {
  for (const Way way : {Way::kToListener, Way::kToConnector}) {
    const std::size_t receiver = way == Way::kToListener ? 0 : 1;
    const std::string sender = std::to_string(11 - receiver);
    for (std::size_t at = 0; at < sizeof(backends::GlooFrame) + sizeof(backends::ControlWord);
         at += 3) {
      const auto errors = sums_with({way, set_up_bytes(way) + at});
      const std::string& error = errors[receiver];
      if (at < sizeof(backends::GlooFrame)) {
        EXPECT_CONTAINS(error, "peer: the connection to rank " + sender + " carries wrong data: ");
      } else {
        EXPECT_CONTAINS(error, "mismatch: ranks disagree: ");
      }
      EXPECT_CONTAINS(error, "rank " + sender);
      EXPECT_EQ(error.find('\n'), std::string::npos);
      EXPECT_NE(errors[1 - receiver], "");
    }
  }
}

// A member of the job that lies: rank 1 has the secret and writes frames of its own.
class GlooLiar : public testing::Test {
 protected:
  static constexpr std::size_t kInbox = 4096, kGuard = 4096;

  // What rank 0 says of a frame; nothing around its buffer may change.
  std::string answer_to(const backends::GlooFrame& frame) {
    Job job;
    std::vector<char> memory(kGuard + kInbox + kGuard, 'g');
    const auto errors = group_harness::outcomes(2, [&](int rank) {
      BackendContext context = job.context(rank, 2);
      if (rank == 0) {
        backends::GlooTransport transport(context);
        const auto buffer = transport.pair(1).bind_receiver(3, memory.data() + kGuard, kInbox);
        buffer->waitRecv();
        return;
      }
      context.prefix += "/gloo";
      const backends::SocketMesh mesh(context);
      const std::string bytes = std::string(reinterpret_cast<const char*>(&frame), sizeof frame) +
                                std::string(2 * kInbox, 'x');
      EXPECT_EQ(send(mesh.fd(0, 0), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
      char end;
      while (recv(mesh.fd(0, 0), &end, 1, 0) < 0 && errno == EAGAIN)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_EQ(memory, std::vector<char>(memory.size(), 'g')) << "memory was written";
    return errors[0];
  }
};

TEST_F(GlooLiar, WritesNothingOutsideItsBuffer) {
  using backends::make_gloo_frame;
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::pair<backends::GlooFrame, std::string> cases[] = {
      {make_gloo_frame(0, 3, 64, std::uint64_t{1} << 51),
       "64 bytes 2251799813685248 buffer 3, 4096 bytes"},
      {make_gloo_frame(0, 3, 4104, kHuge - 4095),
       "4104 bytes 18446744073709547520 buffer 3, 4096 bytes"},
      {make_gloo_frame(0, 3, kInbox + 1, 0), "4097 bytes 0 buffer 3, 4096 bytes"},
      {make_gloo_frame(0, 3, kHuge, 1), std::to_string(kHuge) + " bytes 1 buffer 3, 4096 bytes"},
      {make_gloo_frame(0, 4, 64, 0), "buffer 4,"},
      {make_gloo_frame(7, 3, 64, 0), "message 7 0"},
      {backends::GlooFrame{}, "message's header changed"}};
  for (const auto& [frame, values] : cases)
    EXPECT_VALUES(answer_to(frame), "peer: rank 11 wrong data: " + values);
}

}  // namespace
