// Streams of bytes that outlive cuts at any byte: what was under way is sent again exactly once.
#include "backends/transport/socket/mesh_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace backends {
namespace {

// Two ends with a relay between them that passes on some bytes at a time.
class Wire {
 public:
  std::array<Socket, 2> connect() {
    std::array<Socket, 2> ends;
    const Socket listener = listen_on({"127.0.0.1", 0});
    for (std::size_t i = 0; i < 2; ++i) {
      std::string reason;
      ends[i] =
          connect_to(local_endpoint(listener.fd()),
                     base::deadline_in(test_support::deadline(std::chrono::seconds(10))), reason);
      pollfd p{listener.fd(), POLLIN, 0};
      poll(&p, 1, test_support::deadline_ms(10'000));
      far_[i] = Socket(accept(listener.fd(), nullptr, nullptr));
      EXPECT_TRUE(ends[i] && far_[i]) << reason;
      prepare_stream(ends[i].fd());
    }
    return ends;
  }
  // Returns the number of bytes passed on; others may be lost by cut().
  std::size_t pass(std::size_t from, std::size_t most) {
    std::string bytes(most, '\0');
    const ssize_t n = recv(far_[from].fd(), bytes.data(), most, MSG_DONTWAIT | MSG_PEEK);
    if (n <= 0) return 0;
    const ssize_t sent = ::send(far_[1 - from].fd(), bytes.data(), static_cast<std::size_t>(n),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return 0;
    const auto passed = static_cast<std::size_t>(sent);
    EXPECT_EQ(recv(far_[from].fd(), bytes.data(), passed, MSG_DONTWAIT), sent);
    return passed;
  }
  void cut() {
    for (Socket& end : far_) end.close();
  }
  bool is_cut() const { return !far_[0]; }

 private:
  std::array<Socket, 2> far_;
};

std::string random_text(std::size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Two links that send each other a text, cut and restored by seed.
class Exchange {
 public:
  Exchange(LinkCipher cipher, bool is_memory_stable, unsigned seed)
      : cipher_(cipher), random_(seed) {
    std::array<Socket, 2> ends = wire_.connect();
    for (std::size_t i = 0; i < 2; ++i) {
      texts_[i] = random_text(200'000 + random_() % 300'000, random_);
      arrived_[1 - i].assign(texts_[i].size(), '\0');
      links_[i] = std::make_unique<MeshLink>(
          std::move(ends[i]), keys(i),
          MeshLink::Resuming{.replay_bytes = 2 << 20, .is_memory_stable = is_memory_stable});
    }
  }

  // Returns the number of cuts.
  int run(int cuts) {
    int made = 0;
    std::size_t next_cut = random_() % 100'000, passed = 0;
    while (!is_done()) {
      for (std::size_t i = 0; i < 2; ++i) {
        send_some(i);
        passed += wire_.pass(i, 1 + random_() % 20'000);
        receive_some(1 - i);
      }
      if (made < cuts && passed >= next_cut) {
        ++made;
        wire_.cut();
        passed = 0;
        next_cut = random_() % 3 == 0 ? 1 : random_() % 200'000;  // some at once, in the replay
      }
      if (links_[0]->is_down() && links_[1]->is_down()) reconnect();
    }
    return made;
  }
  bool is_exact() const { return arrived_[0] == texts_[1] && arrived_[1] == texts_[0]; }
  std::uint64_t again() const { return again_; }

 private:
  LinkKeys keys(std::size_t end) const {
    if (cipher_ == LinkCipher::kNone) return {};
    const char epoch = static_cast<char>('a' + 2 * epoch_);  // new ones for each connection
    std::string forth(32, epoch), back(32, static_cast<char>(epoch + 1));
    if (end == 1) std::swap(forth, back);
    return {cipher_, forth, back};
  }
  bool is_done() const {
    return received_[0] == arrived_[0].size() && received_[1] == arrived_[1].size();
  }
  void send_some(std::size_t i) {
    std::size_t& sent = sent_[i];
    // The memory of what was sent changes now and then.
    if (random_() % 4 == 0) {
      links_[i]->copy_unacknowledged();
      std::fill(copies_[i].begin(), copies_[i].end(), '!');
    }
    copies_[i] = texts_[i];  // a buffer that stays as it is until then
    iovec part{copies_[i].data() + sent, texts_[i].size() - sent};
    // A batch of records is given again with the same bytes, also after the last one.
    part.iov_len = std::min<std::size_t>(part.iov_len, 100'000);
    const bool any = part.iov_len > 0 || links_[i]->is_replaying();
    const ssize_t n =
        any ? links_[i]->send({&part, part.iov_len > 0 ? std::size_t{1} : std::size_t{0}}) : 0;
    EXPECT_TRUE(n >= 0 || errno == EAGAIN) << links_[i]->error_text(errno);
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
  void receive_some(std::size_t i) {
    iovec room{arrived_[i].data() + received_[i],
               std::min<std::size_t>(arrived_[i].size() - received_[i], 1 + random_() % 70'000)};
    if (room.iov_len == 0) {  // nothing more is expected: notices a cut as the mesh does
      if (wire_.is_cut()) (void)links_[i]->break_off(0);
      return;
    }
    const ssize_t n = links_[i]->receive({&room, 1});
    EXPECT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << links_[i]->error_text(errno);
    if (n > 0) received_[i] += static_cast<std::size_t>(n);
  }
  void reconnect() {
    std::array<Socket, 2> ends = wire_.connect();
    ++epoch_;
    const std::uint64_t counts[2] = {links_[0]->received(), links_[1]->received()};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto again = links_[i]->resume(std::move(ends[i]), keys(i), counts[1 - i]);
      ASSERT_TRUE(again.has_value()) << links_[i]->error_text(EPIPE);
      again_ += *again;
    }
  }

  const LinkCipher cipher_;
  std::mt19937 random_;
  Wire wire_;
  int epoch_ = 0;
  std::uint64_t again_ = 0;
  std::array<std::string, 2> texts_, copies_, arrived_;
  std::array<std::size_t, 2> sent_{}, received_{};
  std::array<std::unique_ptr<MeshLink>, 2> links_;
};

class MeshLinkCuts : public testing::TestWithParam<LinkCipher> {};

TEST_P(MeshLinkCuts, AtAnyByteLoseAndRepeatNothing) {
  int cuts = 0;
  std::uint64_t again = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    Exchange exchange(GetParam(), /*is_memory_stable=*/seed % 2 == 0, seed);
    cuts += exchange.run(1 + static_cast<int>(seed % 6));
    ASSERT_TRUE(exchange.is_exact()) << "seed " << seed;
    again += exchange.again();
  }
  EXPECT_GE(cuts, 100);
  EXPECT_GT(again, 1'000'000u) << "the cuts have lost nothing that was under way";
}

INSTANTIATE_TEST_SUITE_P(Ciphers, MeshLinkCuts,
                         testing::Values(LinkCipher::kNone, LinkCipher::kChaCha20Poly1305),
                         [](const auto& test) {
                           return test.param == LinkCipher::kNone ? std::string("Plain")
                                                                  : std::string("Encrypted");
                         });

struct Pair {
  Wire wire;
  std::array<std::unique_ptr<MeshLink>, 2> links;
  explicit Pair(const MeshLink::Resuming& resuming) {
    std::array<Socket, 2> ends = wire.connect();
    for (std::size_t i = 0; i < 2; ++i)
      links[i] = std::make_unique<MeshLink>(std::move(ends[i]), LinkKeys{}, resuming);
  }
  void wait_for_the_end() const {
    pollfd p{links[0]->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, test_support::deadline_ms(10'000)), 1);
  }
};

TEST(MeshLink, WithoutPatienceACutIsFinal) {
  Pair pair({});
  pair.wire.cut();
  pair.wait_for_the_end();
  char byte = 0;
  iovec part{&byte, 1};
  EXPECT_EQ(pair.links[0]->receive({&part, 1}), 0);
  EXPECT_FALSE(pair.links[0]->break_off(0));
}

TEST(MeshLink, GivingUpIsReportedByEveryCall) {
  Pair pair({.replay_bytes = 100});
  pair.wire.cut();
  pair.wait_for_the_end();
  char byte = 0;
  iovec part{&byte, 1};
  EXPECT_EQ(pair.links[0]->receive({&part, 1}), -1);
  EXPECT_EQ(errno, EAGAIN);
  pair.links[0]->give_up("no answer");
  EXPECT_EQ(pair.links[0]->send({&part, 1}), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_VALUES(pair.links[0]->error_text(EPIPE), "closed; no answer");
}

// Sends the text, then breaks the connection. Returns this end of a new one.
Socket end_after_break(Pair& pair, std::string& text) {
  iovec part{text.data(), text.size()};
  EXPECT_EQ(pair.links[0]->send({&part, 1}), std::ssize(text));
  pair.wire.cut();
  EXPECT_TRUE(pair.links[0]->break_off(0));
  return std::move(pair.wire.connect()[0]);
}

// E.g. where a process on the path has taken more than both kernels hold.
TEST(MeshLink, BytesThatAreNotKeptEndTheLinkWithBothNumbers) {
  Pair pair({.replay_bytes = 100});
  std::string text(1000, 'x');
  Socket end = end_after_break(pair, text);
  EXPECT_FALSE(pair.links[0]->resume(std::move(end), {}, 899));
  EXPECT_TRUE(pair.links[0]->is_given_up());
  EXPECT_VALUES(pair.links[0]->error_text(EPIPE), "received 899 bytes of 1000, before 900");
}

TEST(MeshLink, BytesThatAnEndedCallStillHasToSendAgainAreNotReplacedByOthers) {
  Pair pair({.replay_bytes = 100, .is_memory_stable = true});
  std::string text(1000, 'x');
  Socket end = end_after_break(pair, text);
  EXPECT_EQ(pair.links[0]->resume(std::move(end), {}, 0), 1000u);
  pair.links[0]->copy_unacknowledged();
  EXPECT_TRUE(pair.links[0]->is_given_up());
  EXPECT_VALUES(pair.links[0]->error_text(EPIPE), "0 bytes 1000 900");
}

}  // namespace
}  // namespace backends
