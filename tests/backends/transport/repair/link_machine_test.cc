// The decisions about a link by hand-driven events: breaks that one or both ends notice, the end of
// the group, refused secrets, and deadlines.
#include "backends/transport/repair/link_machine.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <random>
#include <string>

#include "tests/support/test_clock.h"

namespace backends {
namespace {

using namespace std::chrono_literals;
using Numbers = ConnectionNumbers::Of;
using State = LinkMachine::State;

LinkMachine::Rules rules(Numbers numbers = Numbers::kConnections, bool has_relay = false) {
  const ConnectSchedule::Paces paces{{{}, 50ms, 50ms}, {{}, 1s, 1s}, {2s, 200ms, 200ms}};
  return {.patience = 10s,
          .report_delay = 200ms,
          .numbers = numbers,
          .has_relay = has_relay,
          .set_up = paces,
          .repair = paces};
}

// The ends of a link on one clock.
class LinkMachines : public testing::Test {
 protected:
  explicit LinkMachines(const LinkMachine::Rules& of = rules())
      : connector(of, clock.now()), acceptor(of, clock.now()) {}

  base::Deadline now() const { return clock.now(); }
  // As the handshake without losses.
  void establish() {
    const std::uint32_t number = connector.numbers().offer();
    if (acceptor.state() == State::kNew) {
      acceptor.numbers().adopt(number);
    } else {
      ASSERT_TRUE(acceptor.on_proof(number, now()));
    }
    ASSERT_TRUE(connector.numbers().is_current(number));
    connector.numbers().on_chosen();
    connector.on_established(now());
    ASSERT_TRUE(acceptor.numbers().is_current(number));
    acceptor.on_established(now());
  }
  void expect_up() const {
    EXPECT_EQ(connector.state(), State::kUp);
    EXPECT_EQ(acceptor.state(), State::kUp);
  }

  test_support::TestClock clock;
  LinkMachine connector, acceptor;
};

class AttemptMachines : public LinkMachines {
 protected:
  AttemptMachines() : LinkMachines(rules(Numbers::kAttempts)) {}
};

class RelayedMachines : public LinkMachines {
 protected:
  RelayedMachines() : LinkMachines(rules(Numbers::kConnections, true)) {}
};

// ---- Time.

TEST_F(LinkMachines, ABreakIsReportedOnceAndLastsUntilTheNextConnection) {
  establish();
  EXPECT_FALSE(connector.take_report(now(), true)) << "nothing has broken";
  EXPECT_TRUE(connector.on_break(now()));
  EXPECT_FALSE(connector.on_break(now())) << "it is noticed twice";
  EXPECT_FALSE(connector.take_report(now()));
  clock.advance(200ms);
  EXPECT_TRUE(connector.take_report(now()));
  EXPECT_FALSE(connector.take_report(now(), true));
  clock.advance(300ms);
  connector.numbers().on_chosen();
  EXPECT_EQ(connector.on_established(now()), 500ms);
  EXPECT_FALSE(connector.take_report(now(), true));
}

TEST_F(LinkMachines, AShortBreakIsReportedWithItsEnd) {
  establish();
  connector.on_break(now());
  clock.advance(20ms);
  EXPECT_TRUE(connector.take_report(now(), true));
  EXPECT_EQ(connector.on_established(now()), 20ms);
}

TEST_F(LinkMachines, EachBreakHasThePatienceOfItsOwn) {
  establish();
  connector.on_break(now());
  clock.advance(9s);
  EXPECT_FALSE(connector.on_time(now()));
  connector.numbers().on_chosen();
  connector.on_established(now());
  connector.on_break(now());
  clock.advance(9s);
  EXPECT_FALSE(connector.on_time(now()));
  clock.advance(1s);
  EXPECT_TRUE(connector.on_time(now()));
  EXPECT_EQ(connector.state(), State::kGivenUp);
  EXPECT_FALSE(connector.on_time(now())) << "it is given up once";
}

TEST_F(LinkMachines, SetUpHasNoPatience) {
  clock.advance(1h);
  EXPECT_FALSE(connector.on_time(now()));
  EXPECT_TRUE(connector.needs_connection());
  EXPECT_EQ(connector.on_established(now()), 0s);
}

// The last message of the handshake arrives in the moment in which the patience ends.
TEST_F(LinkMachines, APeerThatIsBackBeforeTheDeadlineIsKept) {
  establish();
  connector.on_break(now());
  acceptor.on_break(now());
  clock.advance(10s);
  establish();
  EXPECT_FALSE(connector.on_time(now()));
  EXPECT_FALSE(acceptor.on_time(now()));
  expect_up();
}

// The acceptor gives up between the proof and the last message.
TEST_F(LinkMachines, APeerThatIsBackAfterTheDeadlineIsNotTaken) {
  establish();
  connector.on_break(now());
  acceptor.on_break(now());
  clock.advance(10s);
  const std::uint32_t number = connector.numbers().offer();
  EXPECT_TRUE(acceptor.on_proof(number, now())) << "it comes before the deadline is looked at";
  EXPECT_TRUE(acceptor.on_time(now()));
  EXPECT_EQ(acceptor.on_established(now()), 0s);
  EXPECT_EQ(acceptor.state(), State::kGivenUp);
  EXPECT_FALSE(acceptor.may_take(number));
  EXPECT_FALSE(acceptor.may_take(number + 1));
  EXPECT_FALSE(acceptor.on_proof(number + 1, now()));
  EXPECT_FALSE(acceptor.begin(ConnectWay::kProbe, now()));
}

// ---- Who notices first.

TEST_F(LinkMachines, BothEndsNoticeAtOnce) {
  establish();
  EXPECT_TRUE(connector.on_break(now()));
  EXPECT_TRUE(acceptor.on_break(now()));
  // The probe of one end and the attempt of the other one cross.
  EXPECT_TRUE(connector.begin(ConnectWay::kDirect, now()));
  EXPECT_TRUE(acceptor.begin(ConnectWay::kProbe, now()));
  EXPECT_FALSE(acceptor.begin(ConnectWay::kProbe, now())) << "one is under way";
  establish();
  acceptor.schedule().end(ConnectWay::kProbe);
  expect_up();
  EXPECT_FALSE(acceptor.on_refused()) << "of a probe that ends late";
  EXPECT_EQ(acceptor.state(), State::kUp);
}

TEST_F(LinkMachines, AnAcceptorLearnsOfABreakByTheNextConnection) {
  establish();
  connector.on_break(now());
  const std::uint32_t number = connector.numbers().offer();
  EXPECT_TRUE(acceptor.may_take(number));
  EXPECT_TRUE(acceptor.on_proof(number, now()));
  EXPECT_EQ(acceptor.state(), State::kBroken);
  EXPECT_FALSE(acceptor.on_break(now())) << "it is the same break";
}

// Only the acceptor notices; the connector learns of it when the acceptor ends the connection.
TEST_F(LinkMachines, AnOldConnectionIsNotTakenAgain) {
  establish();
  const std::uint32_t old = 0;
  EXPECT_FALSE(acceptor.may_take(old)) << "it is up";
  acceptor.on_break(now());
  EXPECT_TRUE(acceptor.may_take(old)) << "its last message may have been lost";
  connector.on_break(now());
  establish();
  acceptor.on_break(now());
  EXPECT_FALSE(acceptor.may_take(old));
}

// The direct attempt and the one at the relay have the same number; the connector ends one.
TEST_F(RelayedMachines, OfTwoAttemptsTheConnectorChooses) {
  establish();
  connector.on_break(now());
  acceptor.on_break(now());
  const std::uint32_t direct = connector.numbers().offer(), relayed = connector.numbers().offer();
  EXPECT_EQ(direct, relayed);
  EXPECT_TRUE(acceptor.on_proof(direct, now()));
  EXPECT_TRUE(acceptor.on_proof(relayed, now()));
  EXPECT_TRUE(connector.numbers().is_current(relayed));
  connector.numbers().on_chosen();
  connector.on_established(now(), true);
  EXPECT_FALSE(connector.numbers().is_current(direct)) << "the other one was quicker";
  EXPECT_TRUE(acceptor.numbers().is_current(relayed));
  acceptor.on_established(now(), true);
  EXPECT_TRUE(acceptor.is_relayed());
  EXPECT_FALSE(acceptor.may_take(direct));
}

// The last message of the handshake is lost with its connection, and the connector repairs again.
TEST_F(LinkMachines, ANewerConnectionReplacesOneThatIsNotFinished) {
  establish();
  connector.on_break(now());
  const std::uint32_t lost = connector.numbers().offer();
  EXPECT_TRUE(acceptor.on_proof(lost, now()));
  connector.numbers().on_chosen();
  connector.on_established(now());
  connector.on_break(now());
  const std::uint32_t next = connector.numbers().offer();
  EXPECT_GT(next, lost);
  EXPECT_TRUE(acceptor.on_proof(next, now()));
  EXPECT_FALSE(acceptor.numbers().is_current(lost)) << "its last byte may come now";
  EXPECT_TRUE(acceptor.numbers().is_current(next));
}

TEST_F(AttemptMachines, EachAttemptHasANumber) {
  const std::uint32_t first = connector.numbers().offer(), second = connector.numbers().offer();
  EXPECT_GT(second, first);
  EXPECT_FALSE(connector.numbers().is_current(first))
      << "the answer to an attempt that was replaced";
  EXPECT_TRUE(acceptor.on_proof(second, now()));
  EXPECT_FALSE(acceptor.on_proof(first, now())) << "it comes late";
  EXPECT_FALSE(acceptor.on_proof(second, now())) << "it is answered once";
  connector.numbers().on_chosen();
  EXPECT_TRUE(connector.numbers().is_current(second));
  connector.on_established(now());
  acceptor.on_established(now());
  acceptor.on_break(now());
  EXPECT_FALSE(acceptor.may_take(second)) << "an attempt makes one connection";
  EXPECT_TRUE(acceptor.may_take(connector.numbers().offer()));
}

// ---- The ends of a repair.

TEST_F(LinkMachines, TheEndOfTheGroupEndsARepair) {
  establish();
  connector.on_break(now());
  acceptor.on_break(now());
  const std::uint32_t number = connector.numbers().offer();
  acceptor.end(State::kEnded);
  EXPECT_FALSE(acceptor.may_take(number));
  EXPECT_FALSE(acceptor.on_proof(number, now()));
  connector.end(State::kEnded);
  clock.advance(1h);
  EXPECT_FALSE(connector.on_time(now())) << "a link that nobody needs is not given up";
  EXPECT_FALSE(connector.take_report(now(), true));
  EXPECT_FALSE(connector.begin(ConnectWay::kDirect, now()));
  EXPECT_FALSE(connector.on_refused()) << "the peer's process has ended as well";
  for (int i = 0; i < kMaxWrongSecrets; ++i)
    EXPECT_FALSE(connector.on_wrong_secret(ConnectWay::kDirect));
  connector.on_established(now());
  EXPECT_EQ(connector.state(), State::kEnded);
}

TEST_F(LinkMachines, ALinkThatWasGivenUpStaysSo) {
  establish();
  connector.on_break(now());
  connector.end(State::kGivenUp);
  connector.end(State::kEnded);
  EXPECT_FALSE(connector.on_break(now()));
  connector.on_established(now());
  EXPECT_EQ(connector.state(), State::kGivenUp);
}

TEST_F(LinkMachines, ARefusalEndsARepairAndNoSetUp) {
  EXPECT_FALSE(connector.on_refused()) << "the peer may be about to listen";
  EXPECT_EQ(connector.state(), State::kNew);
  establish();
  EXPECT_FALSE(connector.on_refused());
  connector.on_break(now());
  EXPECT_TRUE(connector.on_refused());
  EXPECT_EQ(connector.state(), State::kGivenUp);
  EXPECT_FALSE(connector.on_refused()) << "of a probe and of an attempt";
}

TEST_F(RelayedMachines, ARefusalSaysNothingOfALinkThroughTheRelay) {
  connector.on_established(now(), true);
  connector.on_break(now(), true);
  EXPECT_FALSE(connector.on_refused());
  EXPECT_TRUE(connector.begin(ConnectWay::kRelay, now())) << "it goes there at once";
}

TEST_F(LinkMachines, ARefusedSecretEndsARepairAndIsAnErrorInSetUp) {
  for (int i = 1; i < kMaxWrongSecrets; ++i)
    EXPECT_FALSE(connector.on_wrong_secret(ConnectWay::kDirect)) << "a byte may have changed";
  EXPECT_TRUE(connector.on_wrong_secret(ConnectWay::kDirect));
  EXPECT_EQ(connector.state(), State::kNew) << "its error ends the set-up";
  connector.on_established(now());
  connector.on_break(now());  // counts anew
  for (int i = 1; i < kMaxWrongSecrets; ++i)
    EXPECT_FALSE(connector.on_wrong_secret(ConnectWay::kDirect));
  EXPECT_TRUE(connector.on_wrong_secret(ConnectWay::kDirect));
  EXPECT_EQ(connector.state(), State::kGivenUp);
}

TEST_F(RelayedMachines, AnotherHostAtThePeersAddressLeavesTheRelay) {
  establish();
  connector.on_break(now());
  for (int i = 0; i < 2 * kMaxWrongSecrets; ++i)
    EXPECT_FALSE(connector.on_wrong_secret(ConnectWay::kDirect));
  clock.advance(5s);
  EXPECT_FALSE(connector.begin(ConnectWay::kDirect, now()));
  EXPECT_TRUE(connector.begin(ConnectWay::kRelay, now()));
  for (int i = 1; i < kMaxWrongSecrets; ++i)
    EXPECT_FALSE(connector.on_wrong_secret(ConnectWay::kRelay));
  EXPECT_TRUE(connector.on_wrong_secret(ConnectWay::kRelay));
  EXPECT_EQ(connector.state(), State::kGivenUp);
}

// ---- Tries.

TEST(ConnectSchedule, PausesDoubleUpToTheLongest) {
  test_support::TestClock clock;
  ConnectSchedule schedule;
  schedule.start(clock.now(), {{150ms, 500ms, 2s}, {}, {}});
  EXPECT_FALSE(schedule.begin(ConnectWay::kDirect, clock.now())) << "the delay";
  clock.advance(150ms);
  for (const auto pause : {500ms, 1000ms, 2000ms, 2000ms}) {
    EXPECT_TRUE(schedule.begin(ConnectWay::kDirect, clock.now()));
    EXPECT_EQ(schedule.pause(ConnectWay::kDirect), pause);
    schedule.end(ConnectWay::kDirect);
    clock.advance(pause - 1ms);
    EXPECT_FALSE(schedule.begin(ConnectWay::kDirect, clock.now()));
    clock.advance(1ms);
  }
  schedule.start(clock.now(), {{{}, 500ms, 2s}, {}, {}});
  EXPECT_TRUE(schedule.begin(ConnectWay::kDirect, clock.now()));
  EXPECT_EQ(schedule.pause(ConnectWay::kDirect), 500ms) << "a later break begins with the first";
}

TEST(ConnectSchedule, ATryThatIsUnderWayIsNotRepeated) {
  test_support::TestClock clock;
  ConnectSchedule schedule;
  const ConnectSchedule::Paces paces{{{}, 50ms, 50ms}, {{}, 1s, 1s}, {}};
  schedule.start(clock.now(), paces);
  EXPECT_TRUE(schedule.begin(ConnectWay::kDirect, clock.now()));
  EXPECT_TRUE(schedule.begin(ConnectWay::kProbe, clock.now())) << "of its own";
  clock.advance(1min);
  EXPECT_FALSE(schedule.begin(ConnectWay::kDirect, clock.now()));
  EXPECT_TRUE(schedule.is_past(ConnectWay::kDirect, clock.now()));
  schedule.start(clock.now(), paces);
  EXPECT_FALSE(schedule.begin(ConnectWay::kDirect, clock.now())) << "also after another break";
  schedule.end(ConnectWay::kDirect);
  EXPECT_TRUE(schedule.begin(ConnectWay::kDirect, clock.now()));
}

// ---- Random orders.

// Two ends and what is under way between them. Each connection loses all that is on its way when it
// breaks, and an end notices a break at once, late, or by the next connection only.
class History {
 public:
  explicit History(unsigned seed) : random_(seed) {
    const LinkMachine::Rules of = rules();
    connector_ = LinkMachine(of, clock_.now());
    acceptor_ = LinkMachine(of, clock_.now());
  }

  void run(int events) {
    for (int i = 0; i < events && !testing::Test::HasFailure(); ++i) step(true);
    for (int i = 0; i < 200; ++i) step(false);  // nothing breaks any more
    if (acceptor_.state() == State::kGivenUp || connector_.state() == State::kGivenUp) return;
    EXPECT_EQ(connector_.state(), State::kUp);
    EXPECT_EQ(acceptor_.state(), State::kUp);
    EXPECT_EQ(last_chosen_, last_established_);
  }

 private:
  enum class Kind { kProof, kWelcome, kLastByte };
  struct Message {
    Kind kind;
    std::uint32_t number;
  };
  bool chance(unsigned of) { return random_() % of == 0; }

  void step(bool breaks) {
    clock_.advance(std::chrono::milliseconds(random_() % 60));
    const auto now = clock_.now();
    if (breaks && chance(8)) {
      if (chance(2)) sent_.clear();
      if (chance(2)) connector_.on_break(now);
      if (chance(2) && acceptor_.state() != State::kNew) acceptor_.on_break(now);
    }
    // A connection of which only one end exists breaks, and the other end sees it in the end.
    if (!breaks && last_chosen_ != last_established_ && sent_.empty()) connector_.on_break(now);
    if (!breaks && acceptor_.state() == State::kBroken) connector_.on_break(now);
    (void)connector_.on_time(now);
    (void)acceptor_.on_time(now);
    if (connector_.begin(ConnectWay::kDirect, now)) {
      connector_.schedule().end(ConnectWay::kDirect);
      sent_.push_back({Kind::kProof, connector_.numbers().offer()});
    }
    for (int deliveries = 0; !sent_.empty() && deliveries < 3; ++deliveries) deliver(now);
  }

  void deliver(base::Deadline now) {
    const auto at = static_cast<std::ptrdiff_t>(random_() % sent_.size());  // of any attempt
    const Message message = sent_[static_cast<std::size_t>(at)];
    sent_.erase(sent_.begin() + at);
    switch (message.kind) {
      case Kind::kProof:
        if (acceptor_.state() == State::kNew || acceptor_.on_proof(message.number, now))
          sent_.push_back({Kind::kWelcome, message.number});
        return;
      case Kind::kWelcome:
        if (!connector_.needs_connection() || !connector_.numbers().is_current(message.number))
          return;
        connector_.numbers().on_chosen();
        connector_.on_established(now);
        EXPECT_NE(last_chosen_, std::optional(message.number)) << "chosen twice";
        last_chosen_ = message.number;
        sent_.push_back({Kind::kLastByte, message.number});
        return;
      case Kind::kLastByte:
        if (acceptor_.state() == State::kNew) acceptor_.numbers().adopt(message.number);
        if (!acceptor_.needs_connection() || !acceptor_.numbers().is_current(message.number))
          return;
        acceptor_.on_established(now);
        if (acceptor_.state() != State::kUp) return;
        EXPECT_TRUE(!last_established_ || *last_established_ < message.number)
            << "an old connection is used again";
        last_established_ = message.number;
    }
  }

  std::mt19937 random_;
  test_support::TestClock clock_;
  LinkMachine connector_, acceptor_;
  std::deque<Message> sent_;
  std::optional<std::uint32_t> last_chosen_, last_established_;
};

TEST(LinkHistories, EndWithOneConnectionOrGivenUp) {
  for (unsigned seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History(seed).run(100);
  }
}

}  // namespace
}  // namespace backends
