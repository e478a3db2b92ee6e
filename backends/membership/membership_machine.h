// The membership of one process of an elastic job, as a state machine: finds the job or bootstraps
// it, monitors the other members, and agrees with them on the next roster.
//
// It has no clock, socket, thread or randomness of its own, like server_machine.h: membership.h
// runs it on sockets, tests/simulation on a network that exists only in memory. It addresses
// processes, not connections: messages may be lost or late, and are repeated at heartbeats.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/membership/membership_message.h"
#include "backends/membership/paxos.h"
#include "backends/membership/roster.h"
#include "io/base/time/deadline.h"

namespace backends {

// One attempt at a decision.
struct Proposal {
  RosterPtr base, value;
  Ballot ballot, highest;  // highest: ballot of the accepted values received while preparing
  bool accepting = false;
  std::set<AcceptorId> granted;  // in this phase
  base::Deadline until{};
};

// structure: an input for each event, and a question for each step of its driver
class MembershipMachine {
 public:
  using Time = base::Deadline;

  struct Options {
    Member self;
    int min_ranks = 1, max_ranks = 1;
    int heartbeat_ms = 1000;
    int last_call_ms = 3000;   // from the last arrival to the bootstrap with fewer than `max_ranks`
    int give_up_ms = 300'000;  // limit of the wait for a view
    bool may_bootstrap = true;
    // The number of heartbeats for which a process waits for each one before it in the order to
    // propose. With 0 all propose at once, which is as safe, but slower.
    int patience = 2;
    Acceptor* acceptor = nullptr;  // this host's acceptor
    std::function<RandomId()> random;
  };
  MembershipMachine(Options options, Time now);

  // Inputs. Call any number of these, then tick().
  void received(const MembershipMessage& message, Time now);
  // The connection to this process broke, and its address refuses another one: the process is gone.
  void refused(const MemberId& id, Time now);
  // This process serves the join endpoint, or no longer does.
  void set_endpoint_held(bool held, Time now);
  // This process connected to itself through the join endpoint, which several processes serve.
  void on_self_connection(Time now);
  // The main thread has left the group of its view, if it had one, and wants the next.
  void want_view(Time now);
  // This process has taken a step in this generation, so it has the job's state.
  void took_step(std::uint64_t generation, Time now);
  void leave(Time now);     // ends in order: training has finished
  void withdraw(Time now);  // the others continue without this process
  // A long time since the last call means that this process itself was paused; the silence of
  // others then proves nothing.
  void tick(Time now);
  Time next_tick() const;

  // Outputs, to be carried out in this order.
  struct Output {
    enum class Kind { kSend, kSendToEndpoint, kNotice } kind;
    Member to;  // for kSend
    MembershipMessage message;
    std::string text;  // for kNotice
  };
  std::vector<Output> take_output() { return std::exchange(output_, {}); }

  // State.
  const Member& self() const { return options_.self; }
  const RosterPtr& roster() const { return roster_; }  // the newest
  // Returns the view that want_view() asked for, once.
  RosterPtr take_view();
  const std::optional<std::string>& failure() const { return failure_; }  // why no view will come
  bool job_has_ended() const;  // in order, and without this process
  // Returns true if a process waits that all members hear, and there is room.
  bool join_wanted() const;
  // Returns why the generation whose view was taken last cannot continue.
  std::optional<std::string> broken() const;
  bool should_claim_endpoint() const;  // true if this process should serve it when it is free
  bool is_endpoint_held() const;       // by this process, or by one that it receives from
  // Returns true if joining processes should find this one at the endpoint: it is the first of the
  // roster.
  bool should_publish_endpoint() const;
  bool may_end() const;  // after leave() or withdraw(): true if no process needs this one any more
  std::string waiting_for() const;  // while a view is awaited, for messages

 private:
  struct Peer {
    Member member;
    int arrival = 0;
    bool heard = false, refused = false, has_endpoint = false, has_state = false;
    Time last_heard{};  // or the time when it became known
    Stage stage = Stage::kWaiting;
    std::uint64_t reports = 0;  // the number of the newest report
    std::uint64_t generation = 0;
    std::vector<bool> receives_from;  // by place in the roster of that generation
    std::vector<MemberId> receives_from_others;
  };

  // Messages.
  MembershipMessage message(MembershipMessage::Kind kind) const;
  MembershipMessage report();
  void send(const Member& to, MembershipMessage m);
  void send_report(const Member& to);
  void send_roster_update(const Member& to);
  void broadcast_reports();
  void on_report(const MembershipMessage& m);
  void on_roster_update(const MembershipMessage& m);
  void catch_up(const MembershipMessage& m);
  Peer& find_or_add_peer(const Member& member);

  // Knowledge.
  void learn(const RosterPtr& roster);
  void read_acceptor();
  bool is_member() const { return roster_ && roster_->has(options_.self.id); }
  bool has_new_view() const { return is_member() && roster_->generation > taken_; }
  bool is_ready() const {
    return intent_.wants_view && is_member() && roster_->generation == taken_;
  }
  bool is_waiting() const { return intent_.wants_view && !is_member(); }
  bool is_reachable(const Peer& peer) const;
  bool is_reachable(const MemberId& id) const;
  bool receives_from(const MemberId& id) const;                 // for this process
  bool receives_from(const Peer& peer, const Member& m) const;  // for another one, from its reports
  bool mutually_reachable(const Member& a, const Member& b) const;
  bool waits(const Peer& peer) const;
  Stage stage() const;
  void forget_non_members();
  void note_changes();

  // Candidates (membership_candidate.cc).
  void seek();
  void probe_endpoint();
  void seek_as_member();
  void propose_bootstrap();
  bool is_time(Time at);  // for the next attempt; if not, schedules seek() for then
  bool the_old_job_is_dead() const;
  bool others_should_bootstrap() const;
  std::vector<Member> waiting_members(bool by_arrival) const;
  std::vector<Member> clique(std::vector<Member> chosen, const std::vector<Member>& more) const;
  bool can_reach_quorum() const;
  bool leaves_the_state(const std::vector<Member>& chosen) const;
  void propose(std::vector<Member> members);
  void send_proposal();
  void count_vote(const MembershipMessage& m);
  void on_proposal(const MembershipMessage& m);
  std::optional<MembershipMessage> answer(const MembershipMessage& m);
  void on_rejected(const MembershipMessage& m);
  void back_off();
  void decided();

  // Waiting for a view.
  void give_up_when_due();
  std::string lost_text() const;
  std::string slow_text() const;

  Options options_;
  Time now_, last_tick_;
  struct NextTimes {
    Time heartbeat, endpoint, notice, seek = Time::max();
  };
  NextTimes next_;
  RosterPtr roster_;
  std::uint64_t taken_ = 0;   // the generation of the view that was taken last
  bool left_behind_ = false;  // the generation after it has begun without this process
  bool has_endpoint_ = false, has_state_ = false;
  bool lacks_state_ = false;  // those that have the state cannot be reached, and may live
  // The requests of the main thread.
  struct Intent {
    bool wants_view = false, leaves = false, withdraws = false;
    Time waits_since{}, leave_until{};
  };
  Intent intent_;
  std::map<MemberId, Peer> peers_;
  int arrivals_ = 0;
  struct Reports {
    std::vector<MemberId> heard;  // as last reported
    bool due = false;
    std::uint64_t number = 0;
  };
  Reports reports_;

  std::optional<Proposal> proposal_;
  struct Attempts {
    std::uint64_t round = 0;  // the highest seen
    int count = 0;            // at this generation
    Time next{};
    int place = 0;  // in the order of those that might propose
  };
  Attempts attempts_;
  struct Ready {
    std::optional<std::vector<MemberId>> members;  // the reachable members, once all are ready
    Time since{};
  };
  Ready ready_;
  struct Waiting {
    std::vector<MemberId> members = {};  // the founder's
    Time since{};
  };
  Waiting waiting_;

  std::optional<std::string> failure_;
  std::vector<Output> output_;
};

}  // namespace backends
