// One process of an elastic job, and everything else by hand: orders of messages that random
// histories hardly ever bring about.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/membership/membership_machine.h"

namespace {

using backends::AcceptorState;
using backends::Ballot;
using backends::Member;
using backends::MemberId;
using backends::MembershipMachine;
using backends::MembershipMessage;
using backends::Roster;
using backends::RosterPtr;
using backends::Stage;
using std::chrono::milliseconds;
using Kind = MembershipMessage::Kind;

constexpr milliseconds kHeartbeat(1000);

Member member(std::uint64_t number) {
  Member m;
  m.id = {1, number};
  m.host = "n" + std::to_string(number);
  m.acceptor = {2, number};
  m.since = 1;
  return m;
}

RosterPtr roster_of(std::uint64_t generation, const std::vector<std::uint64_t>& numbers) {
  auto roster = std::make_shared<Roster>();
  roster->generation = generation;
  roster->nonce = "generation " + std::to_string(generation);
  for (const std::uint64_t n : numbers) roster->members.push_back(member(n));
  return roster;
}

class HostAcceptor final : public backends::Acceptor {
 public:
  explicit HostAcceptor(const Member& of) : id_(of.acceptor) {}
  backends::AcceptorId id() const override { return id_; }
  bool update(const std::function<void(AcceptorState&)>& change) override {
    if (!is_held) change(state);
    return !is_held;
  }
  void use_as(const MemberId&) override {}
  bool is_used_by(const MemberId&) override { return false; }

  AcceptorState state;
  bool is_held = false;

 private:
  backends::AcceptorId id_;
};

// Process `self` of a first generation of processes 1, 2, ..., each on a host of its own. It may
// have taken a step, and wants the next generation.
class Proposer : public testing::Test {
 protected:
  void begin(std::uint64_t self, std::vector<std::uint64_t> numbers, bool has_state = true) {
    numbers_ = std::move(numbers);
    base_ = roster_of(1, numbers_);
    self_ = self;
    acceptor_ = std::make_unique<HostAcceptor>(member(self));
    acceptor_->state.decided = base_;
    machine_ = std::make_unique<MembershipMachine>(
        MembershipMachine::Options{.self = member(self),
                                   .min_ranks = 1,
                                   .max_ranks = static_cast<int>(numbers_.size()),
                                   .heartbeat_ms = static_cast<int>(kHeartbeat.count()),
                                   .acceptor = acceptor_.get(),
                                   .random =
                                       [this] {
                                         return MemberId{3, ++drawn_};
                                       }},
        now_);
    machine_->want_view(now_);
    tick();
    ASSERT_NE(machine_->take_view(), nullptr);
    if (has_state) machine_->took_step(1, now_);
  }

  // Process 2 of two that may bootstrap a job, and share its endpoint.
  void start_with_shared_endpoint() {
    acceptor_ = std::make_unique<HostAcceptor>(member(2));
    machine_ = std::make_unique<MembershipMachine>(
        MembershipMachine::Options{.self = member(2),
                                   .min_ranks = 1,
                                   .max_ranks = 2,
                                   .acceptor = acceptor_.get(),
                                   .random =
                                       [this] {
                                         return MemberId{3, ++drawn_};
                                       }},
        now_);
    machine_->set_endpoint_held(true, now_);
    machine_->want_view(now_);
  }

  // All want the next generation.
  void all_are_ready() {
    machine_->want_view(now_);
    tick();
    for (const std::uint64_t n : numbers_) report(n, Stage::kReady);
    tick();
  }

  void tick() {
    machine_->tick(now_);
    for (MembershipMachine::Output& out : machine_->take_output()) {
      if (out.kind == MembershipMachine::Output::Kind::kSend)
        sent_.push_back(over_the_wire(out.message));
      if (out.kind == MembershipMachine::Output::Kind::kSendToEndpoint) ++endpoint_probes_;
    }
  }
  void wait(milliseconds time) {
    now_ += time;
    tick();
  }

  void receive(MembershipMessage m, std::uint64_t from) {
    m.from = member(from).id;
    m.to = machine_->self().id;
    machine_->received(over_the_wire(m), now_);
  }
  void report(std::uint64_t from, Stage stage, bool has_state = true) {
    report(from, stage, has_state, ++reports_);
  }
  void report(std::uint64_t from, Stage stage, bool has_state, std::uint64_t number) {
    if (from == self_) return;
    MembershipMessage m;
    m.number = number;
    m.generation = 1;
    m.stage = stage;
    m.has_state = has_state;
    m.receives_from.assign(numbers_.size(), true);
    receive(m, from);
  }
  void reply(Kind kind, std::uint64_t from, const Ballot& ballot, const Ballot& other = {}) {
    MembershipMessage m;
    m.kind = kind;
    m.instance = 2;
    m.ballot = ballot;
    m.other = other;
    m.acceptor = member(from).acceptor;
    receive(m, from);
  }

  // The newest message of this kind that was sent.
  const MembershipMessage* last(Kind kind) const {
    const auto found =
        std::find_if(sent_.rbegin(), sent_.rend(), [&](const auto& m) { return m.kind == kind; });
    return found == sent_.rend() ? nullptr : &*found;
  }

  std::unique_ptr<MembershipMachine> machine_;
  std::unique_ptr<HostAcceptor> acceptor_;
  RosterPtr base_;
  std::vector<MembershipMessage> sent_;
  int endpoint_probes_ = 0;
  base::Deadline now_{base::Deadline::duration(std::chrono::hours(1))};

 private:
  static MembershipMessage over_the_wire(const MembershipMessage& message) {
    backends::FrameParser parser;
    const std::string bytes = backends::membership_frame(message);
    parser.append(bytes.data(), bytes.size());
    return backends::read_membership_frame(parser.next(backends::kFrameBytes).value());
  }

  std::vector<std::uint64_t> numbers_;
  std::uint64_t self_ = 0, drawn_ = 0, reports_ = 0;
};

TEST_F(Proposer, ThreeOfFiveDecide) {
  begin(1, {1, 2, 3, 4, 5});
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot ballot = last(Kind::kPrepare)->ballot;
  reply(Kind::kPromise, 2, ballot);
  EXPECT_EQ(last(Kind::kAccept), nullptr) << "two promises of five are no majority";
  reply(Kind::kPromise, 3, ballot);
  tick();
  ASSERT_NE(last(Kind::kAccept), nullptr);
  reply(Kind::kAccepted, 2, ballot);
  EXPECT_EQ(machine_->roster()->generation, 1u);
  reply(Kind::kAccepted, 3, ballot);
  EXPECT_EQ(machine_->roster()->generation, 2u);
}

TEST_F(Proposer, ALatePromiseChangesNothing) {
  begin(1, {1, 2, 3, 4, 5});
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot ballot = last(Kind::kPrepare)->ballot;
  reply(Kind::kPromise, 2, ballot);
  reply(Kind::kPromise, 3, ballot);
  reply(Kind::kAccepted, 2, ballot);
  reply(Kind::kPromise, 4, ballot);
  EXPECT_EQ(machine_->roster()->generation, 1u) << "a promise was counted as an acceptance";
  reply(Kind::kAccepted, 3, ballot);
  EXPECT_EQ(machine_->roster()->generation, 2u) << "acceptances were forgotten";
}

TEST_F(Proposer, TheNewestAcceptedValueIsProposedAgain) {
  begin(1, {1, 2, 3, 4, 5});
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot ballot = last(Kind::kPrepare)->ballot;
  const RosterPtr older = roster_of(2, {1, 4}), newer = roster_of(2, {1, 5});
  MembershipMessage m;
  m.kind = Kind::kPromise;
  m.instance = 2;
  m.ballot = ballot;
  m.other = {2, {1, 3}};
  m.value = newer;
  m.acceptor = member(2).acceptor;
  receive(m, 2);
  m.other = {1, {1, 4}};
  m.value = older;
  m.acceptor = member(3).acceptor;
  receive(m, 3);
  tick();
  ASSERT_NE(last(Kind::kAccept), nullptr);
  EXPECT_TRUE(last(Kind::kAccept)->value->has(member(5).id));
  EXPECT_FALSE(last(Kind::kAccept)->value->has(member(4).id));
}

// The acceptor could not be had when the attempt began; by the time it can, another process has
// promised it to a higher ballot.
TEST_F(Proposer, IsRejectedByItsOwnHost) {
  begin(1, {1, 2, 3});
  acceptor_->is_held = true;
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot ballot = last(Kind::kPrepare)->ballot;
  reply(Kind::kPromise, 2, ballot);
  acceptor_->is_held = false;
  acceptor_->state.promised = {9, {1, 3}};
  wait(kHeartbeat);
  EXPECT_EQ(last(Kind::kAccept), nullptr) << "its own acceptor had promised another ballot";
}

TEST_F(Proposer, RetriesSoonAfterARejection) {
  begin(1, {1, 2, 3});
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  reply(Kind::kRejected, 2, last(Kind::kPrepare)->ballot, {7, {1, 2}});
  wait(kHeartbeat / 2);
  EXPECT_EQ(last(Kind::kPrepare)->ballot.round, 8u);
}

TEST_F(Proposer, ARepeatedRejectionOfAnEarlierAttemptChangesNothing) {
  begin(1, {1, 2, 3});
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot first = last(Kind::kPrepare)->ballot;
  reply(Kind::kRejected, 2, first, {7, {1, 2}});
  wait(kHeartbeat / 2);
  const Ballot second = last(Kind::kPrepare)->ballot;
  ASSERT_NE(second, first);
  reply(Kind::kRejected, 2, first, {7, {1, 2}});
  reply(Kind::kPromise, 2, second);
  tick();
  EXPECT_NE(last(Kind::kAccept), nullptr);
}

TEST_F(Proposer, AnswersWithWhatItHasAcceptedAndWhen) {
  begin(2, {1, 2, 3});
  const Ballot accepted{4, {1, 3}}, asked{6, {1, 1}};
  acceptor_->state.promised = acceptor_->state.accepted = accepted;
  acceptor_->state.value = roster_of(2, {2, 3});
  MembershipMessage m;
  m.kind = Kind::kPrepare;
  m.base = base_;
  m.ballot = asked;
  receive(m, 1);
  tick();
  const MembershipMessage* promise = last(Kind::kPromise);
  ASSERT_NE(promise, nullptr);
  EXPECT_EQ(promise->ballot, asked);
  EXPECT_EQ(promise->other, accepted);
  ASSERT_NE(promise->value, nullptr);
  EXPECT_EQ(promise->value->nonce, "generation 2");
}

// A report that comes late, or again, is of what its sender no longer does.
TEST_F(Proposer, AnOvertakenReportChangesNothing) {
  begin(1, {1, 2, 3});
  machine_->want_view(now_);
  tick();
  report(2, Stage::kReady, true, 2);
  report(2, Stage::kTraining, true, 1);
  report(3, Stage::kReady);
  tick();
  EXPECT_NE(last(Kind::kPrepare), nullptr) << "it waits for who is ready already";
}

TEST_F(Proposer, LeavesTheBootstrapToTheFirstAtTheEndpoint) {
  start_with_shared_endpoint();
  MembershipMessage first;
  first.members = {member(1)};
  first.receives_from_others = {member(2).id};
  first.has_endpoint = true;
  for (int i = 0; i < 10; ++i) {
    ++first.number;
    receive(first, 1);
    wait(kHeartbeat);
  }
  EXPECT_EQ(machine_->roster(), nullptr);
  first.has_endpoint = false;
  ++first.number;
  receive(first, 1);
  wait(kHeartbeat);
  ASSERT_NE(machine_->roster(), nullptr);
  EXPECT_EQ(machine_->roster()->members.size(), 2u);
}

TEST_F(Proposer, NumbersItsReports) {
  begin(1, {1, 2});
  tick();
  const MembershipMessage first = *last(Kind::kReport);
  EXPECT_EQ(first.to, member(2).id);
  wait(kHeartbeat);
  EXPECT_GT(last(Kind::kReport)->number, first.number);
}

TEST_F(Proposer, ProposesWhenTheFirstInOrderDoesNot) {
  begin(2, {1, 2, 3});
  all_are_ready();
  EXPECT_EQ(last(Kind::kPrepare), nullptr) << "the first one proposes";
  for (int i = 0; i < 3; ++i) {
    report(1, Stage::kReady);
    report(3, Stage::kReady);
    wait(kHeartbeat);
  }
  EXPECT_NE(last(Kind::kPrepare), nullptr);
}

// Two newcomers are more than half of the votes, but only the first member has taken a step.
TEST_F(Proposer, WaitsForWhoHasTheStateUnlessItIsDead) {
  begin(2, {1, 2, 3}, false);
  report(1, Stage::kTraining);
  machine_->want_view(now_);
  for (int i = 0; i < 8; ++i) {
    report(3, Stage::kReady, false);
    wait(kHeartbeat);
  }
  EXPECT_EQ(last(Kind::kPrepare), nullptr) << "it may only be cut off";
  machine_->refused(member(1).id, now_);
  wait(kHeartbeat);
  EXPECT_NE(last(Kind::kPrepare), nullptr);
}

TEST_F(Proposer, TakesAProcessInThatSpeaksAfterItWasRefused) {
  begin(1, {1, 2, 3});
  machine_->refused(member(2).id, now_);
  all_are_ready();
  ASSERT_NE(last(Kind::kPrepare), nullptr);
  const Ballot ballot = last(Kind::kPrepare)->ballot;
  reply(Kind::kPromise, 3, ballot);
  tick();
  ASSERT_NE(last(Kind::kAccept), nullptr);
  EXPECT_TRUE(last(Kind::kAccept)->value->has(member(2).id));
}

// A newcomer's host knows only members that have died and this process, as it was called then.
TEST_F(Proposer, TellsWhoCallsItByItsOldNameWhatWasDecided) {
  begin(3, {1, 2, 3});
  MembershipMessage news;
  news.kind = Kind::kRosterUpdate;
  news.generation = 2;
  news.value = roster_of(2, {1, 2});
  receive(news, 1);
  tick();
  sent_.clear();
  MembershipMessage report;
  report.generation = 1;
  report.from = member(4).id;
  report.to = member(3).id;
  report.members = {member(4)};
  machine_->received(report, now_);
  tick();
  ASSERT_NE(last(Kind::kRosterUpdate), nullptr);
  EXPECT_EQ(last(Kind::kRosterUpdate)->to, member(4).id);
  EXPECT_EQ(last(Kind::kRosterUpdate)->value->generation, 2u);
}

// The others have continued with new members, and have left: only the endpoint is still known.
TEST_F(Proposer, ProbesTheEndpointWhenAllThatItKnowsAreGone) {
  begin(3, {1, 2, 3});
  all_are_ready();
  EXPECT_EQ(endpoint_probes_, 0);
  for (int i = 0; i < 5; ++i) wait(kHeartbeat);
  EXPECT_GT(endpoint_probes_, 0);
}

TEST_F(Proposer, LearnsFromItsHostsAcceptor) {
  begin(1, {1, 2, 3});
  machine_->want_view(now_);
  acceptor_->state.decided = roster_of(2, {1, 3});  // by another process of the host
  wait(kHeartbeat);
  EXPECT_EQ(machine_->roster()->generation, 2u);
}

TEST_F(Proposer, SaysThatItWasLeftBehind) {
  begin(1, {1, 2, 3});
  MembershipMessage news;
  news.kind = Kind::kRosterUpdate;
  news.generation = 2;
  news.value = roster_of(2, {2, 3});
  receive(news, 2);
  EXPECT_EQ(machine_->broken(), "the others have gone on without this process");
  EXPECT_NE(machine_->self().id, member(1).id) << "it is somebody new";
}

}  // namespace
