// The relay: pairs, unauthenticated peers, limits, ends that break, and receivers that do not read.
#include "backends/relay/relay_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "tests/backends/relay/relay_client.h"
#include "tests/support/expect_contains.h"

namespace {

using namespace relay_client;
using namespace std::chrono_literals;

std::string random_text(std::size_t bytes) {
  std::mt19937 random(7);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

void expect_works(const Pair& pair) {
  send_bytes(pair.connector, "ping");
  EXPECT_EQ(read_bytes(pair.acceptor, 4), "ping");
  send_bytes(pair.acceptor, "pong");
  EXPECT_EQ(read_bytes(pair.connector, 4), "pong");
}

// Closes with a reset, as a process does that is killed with unread bytes.
void reset(backends::Socket& socket) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.close();
}

// Sends until neither the relay nor the kernel takes more; returns what was sent.
std::string fill(const backends::Socket& socket) {
  std::string sent;
  const std::string part = random_text(64 << 10);
  for (;;) {
    const ssize_t n = send(socket.fd(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent.append(part, 0, static_cast<std::size_t>(n));
      continue;
    }
    pollfd p{socket.fd(), POLLOUT, 0};
    if (poll(&p, 1, 500) <= 0) return sent;
  }
}

TEST(RelayServer, JoinsBothEndsInEitherOrderAndCopiesBothWays) {
  const Relay relay;
  const std::string text = random_text(3 << 20);
  for (const bool acceptor_first : {true, false}) {
    const RelayEnd first = acceptor_first ? RelayEnd::kAcceptor : RelayEnd::kConnector,
                   second = acceptor_first ? RelayEnd::kConnector : RelayEnd::kAcceptor;
    const std::string name = acceptor_first ? "a" : "c";
    const backends::Socket one = enter(relay.endpoint(), first, name),
                           two = enter(relay.endpoint(), second, name);
    ASSERT_TRUE(is_joined(one));
    ASSERT_TRUE(is_joined(two));
    std::thread sender([&] { send_bytes(one, text); });
    std::thread other([&] { send_bytes(two, text); });
    std::thread reader([&] { EXPECT_TRUE(read_bytes(one, text.size()) == text); });
    EXPECT_TRUE(read_bytes(two, text.size()) == text);
    for (std::thread* thread : {&sender, &other, &reader}) thread->join();
  }
  EXPECT_TRUE(test_support::eventually([&] { return relay.reports().size() == 4; }));
  EXPECT_CONTAINS(relay.reports()[0], "job j: ranks 1 and 2 are joined (127.0.0.1:");
  EXPECT_CONTAINS(relay.reports()[1], "job j: ranks 1 and 2 ended after ");
  EXPECT_CONTAINS(relay.reports()[1], "3145728 bytes from rank ");
  EXPECT_TRUE(relay.notices().empty());
}

TEST(RelayServer, PairsOfOtherConnectionsStayApart) {
  const Relay relay;
  const Pair one = join(relay.endpoint(), "one"), two = join(relay.endpoint(), "two");
  const backends::Socket alone = enter(relay.endpoint(), RelayEnd::kAcceptor, "three");
  send_bytes(one.connector, "1111");
  send_bytes(two.connector, "2222");
  EXPECT_EQ(read_bytes(one.acceptor, 4), "1111");
  EXPECT_EQ(read_bytes(two.acceptor, 4), "2222");
  pollfd p{alone.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);  // neither joined nor closed
}

// The end of one direction is passed on after its last byte; the other direction stays open.
TEST(RelayServer, AnEndThatSendsNoMoreStillReceives) {
  const Relay relay;
  const Pair pair = join(relay.endpoint(), "p");
  const std::string text = random_text(1 << 20);
  std::thread sender([&] {
    send_bytes(pair.connector, text);
    shutdown(pair.connector.fd(), SHUT_WR);
  });
  EXPECT_TRUE(read_bytes(pair.acceptor, text.size() + 1) == text);
  sender.join();
  send_bytes(pair.acceptor, text.substr(0, 100'000));
  EXPECT_TRUE(read_bytes(pair.connector, 100'000) == text.substr(0, 100'000));
  shutdown(pair.acceptor.fd(), SHUT_WR);
  EXPECT_TRUE(is_closed(pair.connector));
  EXPECT_TRUE(test_support::eventually([&] { return relay.reports().size() == 2; }));
}

TEST(RelayServer, WhatAnEndSentBeforeItClosedArrivesAtAnEndThatSendsNoMore) {
  const Relay relay;
  Pair pair = join(relay.endpoint(), "p");
  shutdown(pair.connector.fd(), SHUT_WR);
  EXPECT_TRUE(is_closed(pair.acceptor));
  const std::string sent = fill(pair.acceptor);
  pair.acceptor.close();
  EXPECT_TRUE(read_bytes(pair.connector, sent.size()) == sent);
}

TEST(RelayServer, ABrokenEndEndsThePairAfterItsLastByte) {
  const Relay relay;
  Pair pair = join(relay.endpoint(), "p");
  const Pair other = join(relay.endpoint(), "other");
  const std::string sent = fill(pair.connector);
  reset(pair.connector);  // what the kernel has not sent is lost
  const std::string got = read_bytes(pair.acceptor, sent.size());
  EXPECT_GE(got.size(), backends::kRelayBufferBytes);
  EXPECT_TRUE(got == sent.substr(0, got.size()));
  pair.acceptor.close();
  EXPECT_TRUE(test_support::eventually([&] { return relay.reports().size() == 3; }));
  expect_works(other);
}

// Only its sender has to wait, after a bounded number of bytes.
TEST(RelayServer, APeerThatDoesNotReadStopsItsOwnPairOnly) {
  const Relay relay;
  const Pair stuck = join(relay.endpoint(), "stuck"), other = join(relay.endpoint(), "other");
  const std::string sent = fill(stuck.connector);
  for (int i = 0; i < 100; ++i) expect_works(other);
  send_bytes(stuck.acceptor, "backwards");
  EXPECT_EQ(read_bytes(stuck.connector, 9), "backwards");
  EXPECT_TRUE(read_bytes(stuck.acceptor, sent.size()) == sent);  // nothing was lost meanwhile
  expect_works(stuck);
}

TEST(RelayServer, ARankThatConnectsAgainReplacesItsEarlierConnection) {
  const Relay relay;
  const backends::Socket earlier = enter(relay.endpoint(), RelayEnd::kAcceptor, "p");
  const Pair pair{enter(relay.endpoint(), RelayEnd::kAcceptor, "p"), {}};
  EXPECT_TRUE(is_closed(earlier));
  const backends::Socket connector = enter(relay.endpoint(), RelayEnd::kConnector, "p");
  EXPECT_TRUE(is_joined(pair.acceptor));
  EXPECT_TRUE(is_joined(connector));
}

// Its network may have changed, so that nobody ends the old connection.
TEST(RelayServer, ARankThatConnectsAgainEndsItsJoinedPair) {
  const Relay relay;
  for (const bool acceptor : {true, false}) {
    const Pair old = join(relay.endpoint(), "pair");
    const RelayEnd again = acceptor ? RelayEnd::kAcceptor : RelayEnd::kConnector,
                   other = acceptor ? RelayEnd::kConnector : RelayEnd::kAcceptor;
    const backends::Socket first = enter(relay.endpoint(), again, "pair");
    EXPECT_TRUE(is_closed(acceptor ? old.connector : old.acceptor));
    const backends::Socket second = enter(relay.endpoint(), other, "pair");
    EXPECT_TRUE(is_joined(first));
    EXPECT_TRUE(is_joined(second));
  }
}

TEST(RelayServer, AnEndWhosePartnerDoesNotComeIsClosed) {
  const Relay relay(4096, 50ms);
  EXPECT_TRUE(is_closed(enter(relay.endpoint(), RelayEnd::kAcceptor, "p")));
  EXPECT_TRUE(relay.reports().empty());
  EXPECT_TRUE(relay.notices().empty());  // not a fault of its own
}

TEST(RelayServer, AnEndThatWaitsAndLeavesIsForgotten) {
  const Relay relay;
  enter(relay.endpoint(), RelayEnd::kAcceptor, "p").close();
  const backends::Socket connector = enter(relay.endpoint(), RelayEnd::kConnector, "p");
  const backends::Socket acceptor = enter(relay.endpoint(), RelayEnd::kAcceptor, "p");
  EXPECT_TRUE(is_joined(acceptor));
}

TEST(RelayServer, AnotherSecretIsRejected) {
  const Relay relay;
  const backends::Secret other{std::string(32, 'x'), "elsewhere"};
  const backends::Socket waiting = enter(relay.endpoint(), RelayEnd::kAcceptor, "p");
  EXPECT_TRUE(is_closed(enter(relay.endpoint(), RelayEnd::kConnector, "p", other)));
  EXPECT_TRUE(test_support::eventually([&] { return relay.notices().size() == 1; }));
  EXPECT_VALUES(relay.notices()[0], "rejected 1 connection: 127.0.0.1: secret");
  const backends::Socket connector = enter(relay.endpoint(), RelayEnd::kConnector, "p");
  EXPECT_TRUE(is_joined(waiting));
}

TEST(RelayServer, ARecordedProofIsWorthNothing) {
  const Relay relay;
  const RelayHello hello = hello_for(RelayEnd::kAcceptor, "p");
  std::string proof;
  for (int i = 0; i < 2; ++i) {
    const backends::Socket socket = connect_to(relay.endpoint());
    send_bytes(socket, bytes_of(hello));
    backends::RelayChallenge challenge;
    const std::string got = read_bytes(socket, sizeof challenge);
    ASSERT_EQ(got.size(), sizeof challenge);
    std::copy(got.begin(), got.end(), challenge.nonce);
    if (i == 0) proof = relay_rank_proof(kSecret, hello, challenge);
    send_bytes(socket, proof);
    if (i == 1) {
      EXPECT_TRUE(is_closed(socket));
    }
  }
}

TEST(RelayServer, NoiseIsRejectedAtOnce) {
  const Relay relay;
  const backends::Socket noise = connect_to(relay.endpoint());
  send_bytes(noise, std::string(sizeof(RelayHello), '!'));
  EXPECT_TRUE(is_closed(noise));
  const backends::Socket early = enter(relay.endpoint(), RelayEnd::kAcceptor, "p");
  send_bytes(early, "x");
  EXPECT_TRUE(is_closed(early));
}

// Hundreds of idle connections of one address: the oldest of them are closed, ranks get in.
TEST(RelayServer, StrangersKeepNobodyOut) {
  const Relay relay;
  const Pair before = join(relay.endpoint(), "before");
  std::vector<backends::Socket> unproven;
  for (std::size_t i = 0; i < 3 * backends::kMaxUnprovenPerSource; ++i)
    unproven.push_back(connect_to(relay.endpoint()));
  const Pair after = join(relay.endpoint(), "after");
  expect_works(before);
  expect_works(after);
  EXPECT_TRUE(is_closed(unproven.front()));
  EXPECT_TRUE(test_support::eventually([&] { return !relay.notices().empty(); }));
  EXPECT_LE(relay.notices().size(), 2u);  // one line per 10 s, not one per connection
}

TEST(RelayServer, AStrangerThatSaysNothingIsClosed) {
  const Relay relay;
  const backends::Socket silent = connect_to(relay.endpoint());
  EXPECT_TRUE(is_closed(silent));
}

TEST(RelayServer, ItsConnectionsAreLimited) {
  const Relay relay(2);
  const Pair pair = join(relay.endpoint(), "p");
  EXPECT_TRUE(is_closed(enter(relay.endpoint(), RelayEnd::kAcceptor, "q")));
  EXPECT_TRUE(test_support::eventually([&] { return relay.notices().size() == 1; }));
  EXPECT_VALUES(relay.notices()[0], "2 connections, limit");
  expect_works(pair);
}

}  // namespace
