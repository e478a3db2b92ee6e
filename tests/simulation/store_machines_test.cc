// The store's machines by hand: orders of events that random histories hardly ever bring about, and
// what only a forger says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/store/protocol/member_machine.h"
#include "backends/store/protocol/server_machine.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/protocol/stall_detector.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::Ending;
using backends::Frame;
using backends::FrameType;
using backends::FrameWriter;
using backends::Hello;
using backends::LinkId;
using backends::MemberMachine;
using backends::RankProgress;
using backends::RefusalKind;
using backends::Seals;
using backends::Secret;
using backends::ServerMachine;
using backends::SessionMachine;
using backends::StallDetector;
using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat(1000);
const Secret kSecret{std::string(32, 's'), "a test"};

// A store, and clients that hear of it, and are heard, when they are told to.
class StoreByHand : public testing::Test {
 protected:
  struct Client {
    LinkId link = 0;
    std::unique_ptr<SessionMachine> session;
    std::unique_ptr<MemberMachine> member;
    std::string unread;  // what the store has sent
    bool is_closed = false;
    bool is_cut_off = false;  // probes do not reach it
    RankProgress progress;    // of its heartbeats

    SessionMachine::State state() const { return session->state(); }
    std::string refusal() const { return session->refusal().second; }
  };

  void begin(int world_size) {
    world_size_ = world_size;
    server_ = std::make_unique<ServerMachine>(
        ServerMachine::Options{
            .secret = kSecret,
            .job = hello(0),
            .heartbeat_ms = static_cast<int>(heartbeat_.count()),
            .stall_abort = true,
            .link_patience = patience_,
            .random =
                [this](std::size_t n) { return std::string(n, static_cast<char>(++drawn_)); }},
        now_);
  }

  Hello hello(int rank, std::uint32_t attempt = 1) const {
    Hello h;
    h.rank = rank;
    h.world_size = world_size_;
    h.pid = 100 + rank;
    h.process = "process " + std::to_string(rank);
    h.attempt = attempt;
    h.job = "job";
    h.host = "n" + std::to_string(rank);
    h.settings = {{"--lr", "0.1"}};
    h.settings_digest = backends::settings_digest(h.settings);
    return h;
  }

  // A connection on which nothing has been said yet.
  Client& open() {
    Client& c = clients_.emplace_back();
    c.link = clients_.size();
    server_->opened(c.link, peer_, now_);
    return c;
  }
  Client& call(const Hello& hello) {
    Client& c = open();
    c.session = std::make_unique<SessionMachine>(
        kSecret, hello, std::string(backends::kNonceBytes, static_cast<char>(c.link)), "rank 0");
    return c;
  }
  Client& come(const Hello& hello) {
    Client& c = call(hello);
    for (int i = 0; i < 3; ++i) talk(c);
    return c;
  }
  // It is a member, and has not heard of it yet.
  Client& join_unheard(int rank) {
    Client& c = call(hello(rank));
    talk(c);
    return c;
  }
  Client& join(int rank, std::uint32_t attempt = 1) { return come(hello(rank, attempt)); }

  // The store receives what this client sends, and the client the answer, without polling the
  // others.
  void talk(Client& c) {
    send_output(c);
    receive_input(c);
    send_output(c);
  }
  void send_output(Client& c) {
    const std::string bytes = c.member ? c.member->take_output() : c.session->take_output();
    if (!bytes.empty()) server_->received(c.link, bytes, now_);
    if (c.member) c.member->sent();
    take_output();
  }
  void receive_input(Client& c) {
    const std::string bytes = std::exchange(c.unread, "");
    if (c.member) return c.member->received(bytes, now_);
    c.session->received(bytes);
    if (c.state() != SessionMachine::State::kWelcome || session_only_) return;
    c.member = std::make_unique<MemberMachine>(
        std::move(c.session->parser()), std::move(c.session->seals()),
        static_cast<int>(heartbeat_.count()), now_, backends::LinkPatience{patience_, probe_port_});
    c.member->received("", now_);
  }
  void tick() {
    server_->tick(now_);
    take_output();
  }
  // Time passes; those of the clients that are given live on.
  void wait(milliseconds time, const std::vector<Client*>& alive) {
    constexpr milliseconds kStep(100);
    for (const auto end = now_ + time; now_ < end;) {
      now_ += kStep;
      for (Client* c : alive) {
        c->member->tick(now_);
        if (c->member->heartbeat_due(now_)) c->member->heartbeat(c->progress, now_);
        send_output(*c);
      }
      tick();
      answer_probes();
      for (Client* c : alive) receive_input(*c);
    }
  }
  void take_output() {
    for (const ServerMachine::Output& out : server_->take_output()) {
      if (out.kind == ServerMachine::Output::Kind::kNotice) {
        notices_.push_back(out.text);
        continue;
      }
      Client& c = clients_[out.link - 1];
      if (out.kind == ServerMachine::Output::Kind::kProbe && !c.is_cut_off)
        probed_.insert(out.link);
      if (out.kind == ServerMachine::Output::Kind::kSend) c.unread += out.text;
      if (out.kind == ServerMachine::Output::Kind::kClose) c.is_closed = true;
    }
  }
  void answer_probes() {
    for (const LinkId link : std::exchange(probed_, {})) server_->probed(link, result_, now_);
  }
  void break_off(Client& c, Ending ending = Ending::kFinished) {
    server_->closed(c.link,
                    ending == Ending::kFinished ? "its connection closed" : "its connection broke",
                    ending);
  }

  std::unique_ptr<ServerMachine> server_;
  std::deque<Client> clients_;
  std::vector<std::string> notices_;
  int probe_port_ = 4711;  // where members answer probes
  milliseconds heartbeat_ = kHeartbeat, patience_{0};
  std::set<LinkId> probed_;
  ServerMachine::Probe result_ = ServerMachine::Probe::kAnswered;
  std::string peer_ = "somewhere";
  bool session_only_ = false;  // frames behind the welcome are left to the test
  base::Deadline now_{base::Deadline::duration(std::chrono::hours(1))};

 private:
  int world_size_ = 1;
  unsigned char drawn_ = 0;
};

class PatienceByHand : public StoreByHand {
 protected:
  // All ranks have started, and been probed; the last one is then cut off from rank 0.
  void begin_and_cut(int world_size, milliseconds heartbeat) {
    heartbeat_ = heartbeat;
    patience_ = std::chrono::seconds(30);
    begin(world_size);
    std::vector<Client*> all;
    all.reserve(static_cast<std::size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) all.push_back(&join(rank));
    wait(heartbeat + milliseconds(200), all);  // all have just been heard
    all.back()->is_cut_off = true;
    all.pop_back();
    others_ = std::move(all);
  }
  const std::optional<MemberMachine::Failure>& failure() const {
    return others_[0]->member->state().failure;
  }
  std::vector<Client*> others_;
};

// Three heartbeats take longer than the patience: a process that is only paused so long lives.
TEST_F(PatienceByHand, SilenceMeansNothingBeforeTheThirdHeartbeatIsMissed) {
  begin_and_cut(2, std::chrono::seconds(20));
  wait(std::chrono::seconds(59), others_);
  EXPECT_FALSE(failure());
  wait(std::chrono::seconds(3), others_);
  ASSERT_TRUE(failure());
  EXPECT_EQ(failure()->rank, 1);
  EXPECT_CONTAINS(failure()->what.text, "no new connection within 60.0 s (three heartbeats)");
}

// After a cut TCP repeats what was lost in one direction much later than in the other one.
TEST_F(PatienceByHand, AConnectionThatStaysSilentIsEndedWhenItsProcessAnswersAgain) {
  begin_and_cut(2, kHeartbeat);
  Client& cut = clients_.back();
  wait(std::chrono::seconds(6), others_);
  EXPECT_FALSE(cut.is_closed);
  cut.is_cut_off = false;
  wait(std::chrono::seconds(2), others_);
  EXPECT_TRUE(cut.is_closed) << "the member would wait for rank 0, from which it receives";
  EXPECT_FALSE(failure());
}

TEST_F(PatienceByHand, ARankThatEndsEarlyDoesNotNameItself) {
  begin_and_cut(3, kHeartbeat);
  others_[1]->member->abandon({"its disk is full"}, 1);
  wait(milliseconds(100), others_);
  ASSERT_TRUE(others_[1]->member->state().failure);
  EXPECT_EQ(others_[1]->member->state().failure->what.text, "its disk is full");
  ASSERT_TRUE(others_[0]->member->state().failure);
  EXPECT_CONTAINS(others_[0]->member->state().failure->what.text,
                  "ended before the others: its disk is full; last activity: ");
}

// The notice would promise to wait for it, and the job ends.
TEST_F(PatienceByHand, ABreakAfterAFailureIsNotReported) {
  begin_and_cut(3, kHeartbeat);
  others_[1]->member->abandon({"its disk is full"}, 1);
  wait(milliseconds(100), others_);
  ASSERT_TRUE(failure());
  break_off(clients_.back(), Ending::kBroken);
  wait(std::chrono::seconds(5), {others_[0]});
  EXPECT_EQ(notices_, std::vector<std::string>());
}

// Without that rank, the stall would be blamed on the one that waits for it.
TEST_F(PatienceByHand, AStallIsCheckedWhenAllRanksSendHeartbeats) {
  begin_and_cut(3, kHeartbeat);
  Client& cut = clients_.back();
  wait(milliseconds(1900), others_);  // the cut rank has missed its second heartbeat
  for (Client* waiting : others_) waiting->progress = {11'000, "barrier", ""};
  wait(kHeartbeat, others_);
  EXPECT_FALSE(failure());
  cut.is_cut_off = false;
  std::vector<Client*> all = others_;
  all.push_back(&cut);
  wait(2 * kHeartbeat, all);
  ASSERT_TRUE(failure());
  EXPECT_EQ(failure()->rank, 2);
  EXPECT_CONTAINS(failure()->what.text, "rank 0, 1 in barrier; rank 2 in no collective");
}

// Its host accepts two connections, and nothing answers.
TEST_F(PatienceByHand, AStoppedRankIsNotReportedAsCutOffBefore) {
  begin_and_cut(2, kHeartbeat);
  clients_.back().is_cut_off = false;
  result_ = ServerMachine::Probe::kAccepted;
  wait(std::chrono::seconds(5), others_);
  ASSERT_TRUE(failure());
  EXPECT_CONTAINS(failure()->what.text, "no heartbeat for 3");
  EXPECT_EQ(notices_, std::vector<std::string>());
}

TEST_F(PatienceByHand, ARankThatAnotherOneReachesIsBehindACutLink) {
  begin_and_cut(4, kHeartbeat);
  wait(std::chrono::seconds(4), others_);
  EXPECT_TRUE(others_[0]->member->take_questions().empty());
  for (int rank = 1; rank < 3; ++rank) {
    const auto asked = others_[static_cast<std::size_t>(rank)]->member->take_questions();
    ASSERT_EQ(asked.size(), 1u) << rank;
    EXPECT_EQ(asked[0].rank, 3);
    EXPECT_EQ(asked[0].address, "somewhere:4711");
  }
  others_[1]->member->answer(3, false);
  wait(std::chrono::seconds(1), others_);
  const auto told = [&] {
    return std::ranges::count_if(notices_, [](const std::string& notice) {
      return test_support::has_values(notice, "rank 0 rank 3 cut rank 2 both");
    });
  };
  EXPECT_EQ(told(), 0);
  others_[2]->member->answer(3, true);
  wait(std::chrono::seconds(1), others_);
  EXPECT_EQ(told(), 1);
  EXPECT_FALSE(failure());
  wait(std::chrono::seconds(26), others_);
  ASSERT_TRUE(failure());
  EXPECT_VALUES(failure()->what.text, "--link-patience rank 0 rank 3 cut rank 2 both");
}

TEST_F(PatienceByHand, ARankThatNobodyReachesIsDeadOrCutOff) {
  begin_and_cut(4, kHeartbeat);
  wait(std::chrono::seconds(4), others_);
  others_[1]->member->answer(3, false);
  wait(std::chrono::seconds(1), others_);
  const std::string values = "rank 3 dead, no rank";
  const auto is_told = [&](const std::string& notice) {
    return test_support::has_values(notice, values);
  };
  EXPECT_EQ(std::ranges::count_if(notices_, is_told), 0) << "rank 2 has not answered yet";
  others_[2]->member->answer(3, false);
  wait(std::chrono::seconds(27), others_);
  EXPECT_EQ(std::ranges::count_if(notices_, is_told), 1);
  ASSERT_TRUE(failure());
  EXPECT_VALUES(failure()->what.text, "(--link-patience); " + values);
}

TEST_F(PatienceByHand, ARankLearnsThatItsLostPeerIsHeardByRank0) {
  begin_and_cut(4, kHeartbeat);
  const auto reply_to = [&](int from, int of) {
    Client& c = *others_[static_cast<std::size_t>(from)];
    const auto id = c.member->request(FrameType::kReach, std::to_string(of), [](FrameWriter&) {});
    wait(milliseconds(100), others_);
    return c.member->replies().at(*id);
  };
  EXPECT_VALUES(reply_to(2, 1).value_or(""), "rank 1 rank 2 cut rank 0 both");
  EXPECT_VALUES(reply_to(2, 0).value_or(""), "rank 0 rank 2 cut heartbeats");
  EXPECT_EQ(reply_to(1, 7), "");
  EXPECT_EQ(reply_to(1, 1), "");
  wait(std::chrono::seconds(4), others_);
  EXPECT_EQ(reply_to(1, 3), "") << "the others have not answered yet";
  others_[2]->member->answer(3, true);
  wait(milliseconds(100), others_);
  EXPECT_VALUES(reply_to(1, 3).value_or(""), "rank 0 rank 3 cut rank 2 both");
}

// The last rank is behind a router, which accepts or refuses each probe.
class RouterByHand : public PatienceByHand {
 protected:
  void begin_behind_a_router(ServerMachine::Probe result) {
    result_ = result;
    begin_and_cut(3, kHeartbeat);
    clients_.back().is_cut_off = false;
    // The other ones have not changed.
    for (Client* c : others_) server_->probed(c->link, ServerMachine::Probe::kAnswered, now_);
  }
  Client& routed() { return clients_[2]; }
  // A new connection for the session of `old`, up to the welcome.
  Client& connect_again(Client& old, std::uint32_t attempt, const std::string& process) {
    Hello again = hello(2, attempt);
    again.process = process;
    again.received = old.member->received_frames();
    session_only_ = true;
    Client& c = come(again);
    session_only_ = false;
    return c;
  }
  // The member of `old` continues over `c`.
  void move_member(Client& old, Client& c) {
    old.member->continued(std::move(c.session->parser()), std::move(c.session->seals()),
                          c.session->peer_received(), now_);
    c.member = std::move(old.member);
    c.member->received("", now_);
  }
  void reset_both_ends(Client& c) {
    break_off(c, Ending::kBroken);
    c.member->closed("its connection broke");
  }
  static constexpr std::uint32_t kAgain = 2;
  const std::string
      own_process_ = "process 2",
      unreachable_ =
          "rank 2 (host n2, pid 102) unreachable: 30.0 s (--link-patience); rank 0 router alive";
};

TEST_F(RouterByHand, ARankMayConnectAgainAfterAReset) {
  for (const auto result : {ServerMachine::Probe::kRefused, ServerMachine::Probe::kAccepted,
                            ServerMachine::Probe::kFailed}) {
    clients_.clear();
    notices_.clear();
    begin_behind_a_router(result);
    reset_both_ends(routed());
    wait(std::chrono::seconds(25), others_);
    EXPECT_FALSE(failure());
    Client& again = connect_again(routed(), kAgain, own_process_);
    ASSERT_EQ(again.state(), SessionMachine::State::kWelcome);
    move_member(routed(), again);
    std::vector<Client*> all = others_;
    all.push_back(&again);
    wait(std::chrono::seconds(40), all);
    EXPECT_FALSE(failure());
    EXPECT_LINES(notices_, "lost rank 2 broke 30.0 s", "rank 2 back 25.0 s");
    EXPECT_TRUE(others_[1]->member->take_questions().empty()) << "its address leads nowhere";
  }
}

TEST_F(RouterByHand, ARankThatDoesNotComeBackIsLostAndNotLetInAgain) {
  begin_behind_a_router(ServerMachine::Probe::kRefused);
  reset_both_ends(routed());
  wait(std::chrono::milliseconds(29'900), others_);
  EXPECT_FALSE(failure());
  wait(std::chrono::milliseconds(300), others_);
  ASSERT_TRUE(failure());
  EXPECT_EQ(failure()->rank, 2);
  EXPECT_VALUES(failure()->what.text, unreachable_);
  Client& late = connect_again(routed(), kAgain, own_process_);
  ASSERT_EQ(late.state(), SessionMachine::State::kRefused);
  EXPECT_VALUES(late.refusal(), "session: dead");
}

// A member that still receives from rank 0 learns from the end that it is to connect again.
TEST_F(RouterByHand, ASilentRankIsToConnectAgain) {
  begin_behind_a_router(ServerMachine::Probe::kRefused);
  wait(std::chrono::milliseconds(2'900), others_);
  EXPECT_FALSE(routed().is_closed);
  wait(std::chrono::milliseconds(300), others_);
  EXPECT_TRUE(routed().is_closed);
  wait(std::chrono::seconds(26), others_);
  EXPECT_FALSE(failure());
  EXPECT_EQ(connect_again(routed(), kAgain, own_process_).state(), SessionMachine::State::kWelcome);
}

TEST_F(RouterByHand, AFinishedConnectionIsWaitedForThreeHeartbeats) {
  begin_behind_a_router(ServerMachine::Probe::kRefused);
  break_off(routed(), Ending::kFinished);
  wait(std::chrono::milliseconds(2'900), others_);
  EXPECT_FALSE(failure());
  wait(std::chrono::milliseconds(300), others_);
  ASSERT_TRUE(failure());
  EXPECT_CONTAINS(failure()->what.text,
                  "rank 2 (host n2, pid 102) died: its connection closed; no new connection within "
                  "3.0 s (three heartbeats)");
  EXPECT_LINES(notices_, "lost rank 2 closed 3.0 s");
}

// The welcome came too late for the member, which closed the attempt and makes another one.
TEST_F(RouterByHand, AnAttemptThatItsMemberHasClosedIsNotItsEnd) {
  begin_behind_a_router(ServerMachine::Probe::kRefused);
  reset_both_ends(routed());
  wait(std::chrono::seconds(1), others_);
  Client& closed = connect_again(routed(), kAgain, own_process_);
  ASSERT_EQ(closed.state(), SessionMachine::State::kWelcome);
  break_off(closed, Ending::kFinished);
  wait(std::chrono::seconds(20), others_);
  EXPECT_FALSE(failure());
  EXPECT_EQ(connect_again(routed(), kAgain + 1, own_process_).state(),
            SessionMachine::State::kWelcome);
}

TEST_F(RouterByHand, OnlyItsOwnProcessContinuesASession) {
  begin_behind_a_router(ServerMachine::Probe::kRefused);
  reset_both_ends(routed());
  wait(std::chrono::seconds(1), others_);
  Client& other = connect_again(routed(), kAgain, "another process");
  ASSERT_EQ(other.state(), SessionMachine::State::kRefused);
  EXPECT_CONTAINS(other.refusal(), "cannot continue its session");
  Client& unproved = call(hello(2, kAgain));
  const Secret wrong{std::string(32, 'x'), "a forger"};
  Hello forged = hello(2, kAgain);
  forged.received = routed().member->received_frames();
  unproved.session =
      std::make_unique<SessionMachine>(wrong, forged, std::string(backends::kNonceBytes, 'n'), "");
  for (int i = 0; i < 3; ++i) talk(unproved);
  EXPECT_EQ(unproved.state(), SessionMachine::State::kOtherSecret);
  tick();
  EXPECT_TRUE(unproved.is_closed);
  EXPECT_EQ(connect_again(routed(), kAgain, own_process_).state(), SessionMachine::State::kWelcome);
  // An attempt that was made before, and comes now.
  EXPECT_NE(connect_again(routed(), 1, own_process_).state(), SessionMachine::State::kWelcome);
  wait(std::chrono::milliseconds(300), others_);
  EXPECT_FALSE(failure());
}

// A portable computer, e.g., changes its network: what its old address proved does not hold.
TEST_F(RouterByHand, ARankThatComesFromAnotherNetworkIsProbedAgain) {
  begin_behind_a_router(ServerMachine::Probe::kAnswered);
  reset_both_ends(routed());
  peer_ = "elsewhere";
  Client& again = connect_again(routed(), kAgain, own_process_);
  ASSERT_EQ(again.state(), SessionMachine::State::kWelcome);
  move_member(routed(), again);
  result_ = ServerMachine::Probe::kRefused;
  answer_probes();
  reset_both_ends(again);
  wait(std::chrono::seconds(20), others_);
  EXPECT_FALSE(failure());
}

// A rank waits for four heartbeats to be told why a connection to another one broke.
TEST_F(StoreByHand, TheVerdictOnWhoHasGoneComesBeforeTheOthersGiveUp) {
  begin(2);
  Client &root = join(0), &gone = join_unheard(1);
  ASSERT_TRUE(server_->has_started());
  // Its answer to the start is lost with its connection, which rank 0 notices later.
  wait(milliseconds(2200), {&root});
  break_off(gone);
  wait(milliseconds(1600), {&root});
  ASSERT_TRUE(root.member->state().failure);
  EXPECT_EQ(root.member->state().failure->rank, 1);
}

TEST_F(StoreByHand, AfterAPauseOfRank0WhoHasGoneMayStillComeBack) {
  begin(2);
  Client &root = join(0), &gone = join_unheard(1);
  tick();
  now_ += std::chrono::seconds(10);
  break_off(gone);
  tick();
  wait(milliseconds(1000), {&root});
  Client& again = join(1, 2);
  ASSERT_EQ(again.state(), SessionMachine::State::kWelcome);
  wait(milliseconds(1000), {&root, &again});
  EXPECT_FALSE(root.member->state().failure);
  EXPECT_TRUE(again.member->state().started);
}

TEST_F(StoreByHand, WhoComesBackIsToldOfTheFailure) {
  begin(3);
  Client& gone = join(1);
  Client& dies = join(2);
  Client& root = join(0);
  talk(dies);
  break_off(gone);
  tick();
  break_off(dies);
  tick();
  talk(root);
  ASSERT_TRUE(root.member->state().failure);
  Client& again = join(1, 2);
  talk(again);
  EXPECT_TRUE(again.member->state().started);
  ASSERT_TRUE(again.member->state().failure);
  EXPECT_EQ(again.member->state().failure->rank, 2);
}

TEST_F(StoreByHand, NobodyIsWaitedForOnceItIsGivenUp) {
  begin(2);
  Client &root = join(0), &gone = join_unheard(1);
  break_off(gone);
  wait(milliseconds(4000), {&root});
  ASSERT_TRUE(root.member->state().failure);
  Client& again = join(1, 2);
  ASSERT_EQ(again.state(), SessionMachine::State::kRefused);
  EXPECT_CONTAINS(again.refusal(), "reconnected too late");
  break_off(root);
  tick();
  EXPECT_TRUE(server_->may_end());
}

TEST_F(StoreByHand, WhoHasGoneInTheSameTurnIsMissing) {
  begin(3);
  join(0);
  Client& gone = join(1);
  tick();
  break_off(gone);
  join(2);
  EXPECT_FALSE(server_->has_started());
}

TEST_F(StoreByHand, TheStartTakesEffectWhenItsAnswerHasBeenSent) {
  begin(2);
  Client& root = join(0);
  join(1);
  receive_input(root);
  root.member->sent();  // of what came before
  EXPECT_FALSE(root.member->state().started);
  send_output(root);
  EXPECT_TRUE(root.member->state().started);
}

TEST_F(StoreByHand, TheEndOfRank0IsNoFailureForWhoLeaves) {
  begin(2);
  Client &root = join(0), &other = join(1);
  talk(root);
  talk(other);
  other.member->leave();
  other.member->closed("its connection closed");
  EXPECT_TRUE(other.member->state().lost);
  EXPECT_FALSE(other.member->state().failure);
}

TEST_F(StoreByHand, AnEarlierConnectionOfAProcessThatComesLateIsClosed) {
  begin(3);
  Client& late = call(hello(1, 1));
  Client& newest = join(1, 2);
  for (int i = 0; i < 3; ++i) talk(late);
  tick();
  EXPECT_TRUE(late.is_closed);
  EXPECT_FALSE(newest.is_closed);
}

TEST_F(StoreByHand, UnknownProcessesAreNotTheSame) {
  begin(3);
  Hello unknown = hello(1);
  unknown.process = "";
  come(unknown);
  EXPECT_EQ(come(unknown).state(), SessionMachine::State::kRefused);
}

TEST_F(StoreByHand, AMessageOfDifferingCallsIsToldAsSuch) {
  begin(3);
  Client &root = join(0), &one = join(1), &two = join(2);
  for (Client* c : {&root, &one, &two}) talk(*c);
  one.member->abandon({"calls differ", true}, 1);
  send_output(one);
  talk(two);
  ASSERT_TRUE(two.member->state().failure);
  EXPECT_TRUE(two.member->state().failure->what.mismatch);
  EXPECT_EQ(two.member->state().failure->what.text, "calls differ");
}

TEST_F(StoreByHand, AChangedActivityIsSentSoon) {
  begin(2);
  Client& root = join(0);
  root.member->heartbeat({}, now_);
  EXPECT_FALSE(root.member->heartbeat_due(now_));
  root.member->set_activity("step 1");
  EXPECT_TRUE(root.member->heartbeat_due(now_));
}

TEST_F(StoreByHand, TheLastActivityOfRank0IsNamedByTheOthers) {
  begin(2);
  Client &root = join(0), &other = join(1);
  talk(root);
  talk(other);
  root.member->set_activity("step 7");
  wait(2 * kHeartbeat, {&root, &other});
  other.member->closed("its connection closed");
  ASSERT_TRUE(other.member->state().failure);
  EXPECT_TRUE(other.member->state().failure->what.text.ends_with("last activity: step 7"));
}

TEST_F(StoreByHand, TellsWhoIsConnected) {
  begin(3);
  join(0);
  Client& gone = join(1);
  break_off(gone);
  const std::vector<backends::RankStatus> statuses = server_->statuses();
  EXPECT_TRUE(statuses[0].connected);
  EXPECT_FALSE(statuses[1].connected);
  EXPECT_FALSE(statuses[2].connected);
}

TEST_F(StoreByHand, AfterAMismatchOnlyThoseAreAwaitedThatHaveNotBeenTold) {
  begin(4);
  Client& root = join(0);
  Hello other = hello(1);
  other.build = "another";
  come(other);
  receive_input(root);
  ASSERT_TRUE(root.member->state().fatal);
  break_off(root);
  tick();
  EXPECT_FALSE(server_->may_end());
  EXPECT_EQ(join(2).state(), SessionMachine::State::kRefused);
  other.rank = 3;
  EXPECT_EQ(come(other).state(), SessionMachine::State::kRefused);
  tick();
  EXPECT_TRUE(server_->may_end());
}

TEST_F(StoreByHand, RefusalsAreToldOnceASecond) {
  begin(2);
  Hello other = hello(1);
  for (const char* job : {"one", "two", "three"}) {
    other.job = job;
    come(other);
  }
  EXPECT_EQ(notices_.size(), 1u);
  now_ += std::chrono::seconds(2);
  come(other);  // no news
  EXPECT_EQ(notices_.size(), 1u);
  other.job = "four";
  come(other);
  EXPECT_EQ(notices_.size(), 2u);
}

// ---- Those that are no members.

TEST_F(StoreByHand, TheOldestOfTooManyStrangersGivesWay) {
  begin(2);
  for (std::size_t i = 0; i <= backends::kMaxUnauthenticated; ++i) open();
  tick();
  for (std::size_t i = 0; i < clients_.size(); ++i) EXPECT_EQ(clients_[i].is_closed, i == 0) << i;
}

TEST_F(StoreByHand, TheOldestOfTooManyObserversGivesWay) {
  begin(2);
  session_only_ = true;
  for (std::size_t i = 0; i <= backends::kMaxObservers; ++i) come(hello(backends::kObserverRank));
  tick();
  for (std::size_t i = 0; i < clients_.size(); ++i) EXPECT_EQ(clients_[i].is_closed, i == 0) << i;
}

TEST_F(StoreByHand, AnObserverIsToldAtOnceHowThingsStand) {
  begin(2);
  session_only_ = true;
  server_->set_status("step 7");
  Client& c = come(hello(backends::kObserverRank));
  std::vector<std::string> reported;
  while (std::optional<Frame> frame = c.session->parser().next(backends::kFrameBytes)) {
    c.session->seals().to_client.open(*frame);
    if (frame->type != FrameType::kStatus) continue;
    backends::FrameReader in(frame->payload);
    reported.push_back(in.text());
  }
  EXPECT_EQ(reported, std::vector<std::string>{"step 7"});
}

// ---- Forgers.

// The frames in `bytes`, each with its length.
std::vector<std::string> frames_of(const std::string& bytes) {
  std::vector<std::string> frames;
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    const std::uint32_t length = backends::FrameReader(bytes.substr(at, 4)).u32();
    frames.push_back(bytes.substr(at, 4 + length));
    at += 4 + length;
  }
  return frames;
}

TEST_F(StoreByHand, AnOldProofProvesNothing) {
  begin(2);
  Client& c = call(hello(1));
  const std::string said = c.session->take_output();
  server_->received(c.link, said, now_);
  take_output();
  receive_input(c);
  const std::string proof = c.session->take_output();
  Client& forger = open();
  server_->received(forger.link, said, now_);
  server_->received(forger.link, proof, now_);
  tick();
  EXPECT_TRUE(forger.is_closed);
}

TEST_F(StoreByHand, WhatRank0ProvesProvesNothingOfOthers) {
  begin(2);
  Client& forger = call(hello(1));
  send_output(forger);
  const std::string challenge = frames_of(forger.unread).at(0).substr(5);
  server_->received(
      forger.link,
      FrameWriter(FrameType::kProof).bytes(challenge.substr(backends::kNonceBytes)).finish(), now_);
  tick();
  EXPECT_TRUE(forger.is_closed);
}

TEST_F(StoreByHand, EachChallengeIsNew) {
  begin(2);
  Client &one = call(hello(1)), &two = call(hello(1));
  send_output(one);
  send_output(two);
  EXPECT_NE(one.unread.substr(5, backends::kNonceBytes),
            two.unread.substr(5, backends::kNonceBytes));
}

TEST_F(StoreByHand, FramesThatAreForgedEndTheConnection) {
  begin(3);
  Client& root = join(0);
  const auto is_taken = [&](const auto& forge) {
    Client& c = join(1);
    c.member->heartbeat({}, now_);
    server_->received(c.link, forge(c.member->take_output()), now_);
    tick();
    const bool is_open = !c.is_closed;
    if (is_open) break_off(c);
    tick();
    return is_open;
  };
  EXPECT_TRUE(is_taken([](std::string said) { return said; }));
  // A heartbeat as something else, which means nothing before the start.
  EXPECT_FALSE(is_taken([](std::string said) {
    said[4] = static_cast<char>(FrameType::kRootSilent);
    return said;
  }));
  // Too short for a seal.
  EXPECT_FALSE(
      is_taken([](const std::string&) { return FrameWriter(FrameType::kRootSilent).finish(); }));
  EXPECT_FALSE(root.is_closed);
}

// Rank 0 would connect there.
TEST_F(StoreByHand, APortThatDoesNotExistEndsTheConnection) {
  for (const int port : {-1, 65'536}) {
    patience_ = std::chrono::seconds(30);
    probe_port_ = port;
    begin(1);
    clients_.clear();
    probed_.clear();
    Client& c = join(0);
    talk(c);
    tick();
    EXPECT_TRUE(c.is_closed) << port;
    EXPECT_TRUE(probed_.empty()) << port;
  }
}

TEST_F(StoreByHand, SealsAreOfOneConnection) {
  const std::string frame = FrameWriter(FrameType::kLeave).finish();
  Seals one = backends::make_seals(kSecret, "hello", "nonce"),
        other_nonce = backends::make_seals(kSecret, "hello", "another"),
        other_hello = backends::make_seals(kSecret, "another", "nonce"),
        way_back = backends::make_seals(kSecret, "hello", "nonce");
  const std::string sealed = one.to_server.close(frame);
  EXPECT_NE(other_nonce.to_server.close(frame), sealed);
  EXPECT_NE(other_hello.to_server.close(frame), sealed);
  EXPECT_NE(way_back.to_client.close(frame), sealed);
}

TEST_F(StoreByHand, SettingsThatAreNotThoseOfTheDigestEndTheConnection) {
  begin(2);
  Hello other = hello(1);
  other.settings_digest = "another";
  Client& c = come(other);
  tick();
  EXPECT_TRUE(c.is_closed);
  EXPECT_NE(c.state(), SessionMachine::State::kRefused);
}

TEST_F(StoreByHand, AnotherProgramsHelloEndsTheConnection) {
  begin(2);
  Hello other = hello(1);
  other.magic ^= 1;
  Client& c = call(other);
  send_output(c);
  tick();
  EXPECT_TRUE(c.is_closed);
  EXPECT_EQ(c.unread, "");
  Client& empty = open();
  server_->received(empty.link, std::string(4, '\0'), now_);
  tick();
  EXPECT_TRUE(empty.is_closed);
}

TEST_F(StoreByHand, AnotherProgramsAnswerIsNotThatOfAStore) {
  begin(2);
  for (const std::string& answer :
       {FrameWriter(FrameType::kChallenge).bytes("short").finish(),
        FrameWriter(FrameType::kWelcome).finish(), std::string(64, '!')}) {
    Client& c = call(hello(1));
    c.session->received(answer);
    EXPECT_EQ(c.state(), SessionMachine::State::kNoStore);
  }
}

// The length is read before the seal can be checked, which comes last.
TEST_F(StoreByHand, ALengthBeforeTheWelcomeIsBounded) {
  begin(2);
  for (const std::uint32_t more : {0u, 1u}) {
    Client& c = call(hello(1));
    send_output(c);
    receive_input(c);  // the challenge
    ASSERT_EQ(c.state(), SessionMachine::State::kRunning);
    const std::uint32_t length = backends::kSettingsBytes + backends::kSealBytes + more;
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(length >> 8 * i & 255);
    c.session->received(bytes);
    EXPECT_EQ(c.state(),
              more == 0 ? SessionMachine::State::kRunning : SessionMachine::State::kNoStore);
  }
}

// ---- Stalls.

struct Waiting {
  int rank;
  RankProgress progress;
  std::string activity;
};

std::optional<StallDetector::Stall> check(StallDetector& watch, const std::vector<Waiting>& ranks) {
  std::vector<StallDetector::Member> members;
  members.reserve(ranks.size());
  for (const Waiting& w : ranks) members.push_back({w.rank, w.progress, w.activity});
  return watch.check(members);
}

TEST(StallsByHand, WhoIsInAnotherCallThanMostIsWaitedFor) {
  StallDetector watch(milliseconds(1000));
  const auto stall = check(watch, {{0, {1100, "b", ""}, ""},
                                   {1, {1500, "a", ""}, ""},
                                   {2, {1200, "a", "nothing"}, ""},
                                   {3, {1300, "a", ""}, ""}});
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->culprit, 0);
  EXPECT_EQ(stall->concerned, (std::set<int>{0, 1}));
  EXPECT_EQ(stall->text,
            "no progress for 1.5 s: rank 1, 2, 3 in a; rank 0 in b; rank 2 has nothing");
}

TEST(StallsByHand, WhereAllAreInOneCallLinksAreTheCause) {
  StallDetector watch(milliseconds(1000));
  const auto stall = check(
      watch, {{0, {1500, "a", ""}, ""}, {1, {1400, "a", ""}, ""}, {2, {1300, "a", "nothing"}, ""}});
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->concerned, (std::set<int>{0, 2}));
  StallDetector other(milliseconds(1000));
  const auto silent = check(other, {{0, {1500, "a", ""}, ""}, {1, {1400, "a", ""}, ""}});
  ASSERT_TRUE(silent);
  EXPECT_TRUE(silent->text.ends_with("rank 0, 1 in a, and no data arrives")) << silent->text;
}

TEST(StallsByHand, ASecondOneIsReportedAndNoneWhereTheyAreNotLookedFor) {
  StallDetector watch(milliseconds(1000)), never(milliseconds(0));
  const std::vector<Waiting> stalled = {{0, {1500, "a", ""}, ""}},
                             moving = {{0, {10, "b", ""}, ""}};
  EXPECT_TRUE(check(watch, stalled));
  EXPECT_FALSE(check(watch, stalled));
  EXPECT_FALSE(check(watch, moving));
  EXPECT_TRUE(check(watch, stalled));
  EXPECT_FALSE(check(never, stalled));
}

}  // namespace
