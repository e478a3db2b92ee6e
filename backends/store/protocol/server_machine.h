// The store's server as a state machine: authenticates ranks, starts the group when all have
// joined, stores the keys, and reports failures of members to the others.
//
// It has no clock, socket, thread or randomness of its own: events go in together with the time,
// and actions are taken out. store_server.h runs it on sockets, tests/simulation on a network and a
// clock that exist only in memory. server_machine.cc has the handling of events, server_members.cc
// that of members and keys, server_links.cc that of broken connections.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/member_doubt.h"
#include "backends/store/protocol/seal.h"
#include "backends/store/protocol/sent_frames.h"
#include "backends/store/protocol/stall_detector.h"
#include "io/base/time/deadline.h"

namespace backends {

using Time = base::Deadline;   // only compared and added to
using LinkId = std::uint64_t;  // a connection; grows, and is never reused

// The maximum numbers of connections; beyond them the oldest is closed.
inline constexpr std::size_t kMaxUnauthenticated = 64, kMaxObservers = 16;

class ServerMachine {
 public:
  struct Options {
    Secret secret;
    Hello job;     // the values that a member must match; host and pid are rank 0's
    int port = 0;  // the port that it listens on
    int heartbeat_ms = 1000;
    int stall_after_ms = 10'000;
    bool stall_abort = false;
    // A member whose connection breaks or is silent has this time to continue, if its process may
    // be alive. 0: it has failed.
    std::chrono::milliseconds link_patience = {};
    std::function<std::string(std::size_t)> random;  // returns the given number of bytes
  };
  ServerMachine(Options options, Time now);

  // Inputs. Call any number of these, then tick().
  void opened(LinkId link, const std::string& peer, Time now);  // peer: address, for messages
  void received(LinkId link, std::string_view bytes, Time now);
  void closed(LinkId link, const std::string& cause, Ending ending);
  // The result of a probe: a connection to the port that the member of this link has named.
  enum class Probe { kRefused, kAccepted, kAnswered, kFailed };
  void probed(LinkId link, Probe result, Time now);
  void give_up(RefusalKind kind, const std::string& text);  // a group that has not started
  void set_status(const std::string& text);                 // for observers
  // Call it at next_tick() at the latest. A long time since the last call means that this process
  // itself was paused; the silence of others then proves nothing.
  void tick(Time now);
  Time next_tick() const;
  // Returns true if no receiver is left, or after a deadline.
  bool may_end() const;
  void notify_end();  // to members that still run, and to observers

  // Outputs, to be carried out in this order.
  struct Output {
    enum class Kind { kSend, kClose, kNotice, kProbe } kind;
    LinkId link;       // for kSend, kClose, kProbe
    std::string text;  // the bytes, the notice, or the address of a new probe
  };
  std::vector<Output> take_output() { return std::exchange(output_, {}); }

  bool has_started() const { return started_; }
  std::vector<RankStatus> statuses() const;  // for all ranks, by rank
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  // The state of a member that outlives its connection.
  struct Session {
    std::string activity;             // last one reported
    RankProgress progress;            // last one reported
    bool acknowledged_start = false;  // it has confirmed kStart, and starts no new session
    bool leaving = false;             // it is leaving in order: its end is not a failure
    SentFrames sent;
    std::uint64_t received = 0;  // frames
    int port = 0;                // for probes
    ProbeReach reach = ProbeReach::kUnknown;
  };
  // The server's end of a connection.
  struct Link {
    enum class Stage { kHello, kProof, kSettings, kMember, kObserver };

    LinkId id = 0;
    std::string peer;
    Stage stage = Stage::kHello;
    Time hello_deadline{};  // while joining: the connection is closed at this time
    Time last_received{};
    FrameParser parser;
    Seals seals;  // after a valid proof
    std::string hello_payload, server_nonce;
    Hello hello;
    Session session;                   // of a member
    bool is_used = false;              // its member has sent frames over it
    std::optional<MemberDoubt> doubt;  // of a member
    bool silent = false;               // for so long that it counts as dead
    std::string end;                   // why the connection ended; "": it has not

    bool alive() const { return end.empty() && !silent; }
    // Its connection has ended, and another one may continue its session.
    bool is_broken() const { return doubt && doubt->is_broken(); }
    bool is_member() const { return stage == Stage::kMember; }
    bool is_observer() const { return stage == Stage::kObserver; }
    bool is_joining() const { return !is_member() && !is_observer(); }
    std::size_t longest_frame() const;
  };

  // Returns the oldest such connection if there are `most`, to be closed for a new one. Else null.
  Link* oldest_of(bool (Link::*is_such)() const, std::size_t most);
  void send(Link& l, std::string frame);
  void send(Link& l, const SentFrames::Shared& frame);
  void put_out(Link& l, const std::string& frame);
  void handle(Link& l, const Frame& frame);  // throws MalformedFrame
  void on_hello(Link& l, const Frame& frame);
  void on_proof(Link& l, const Frame& frame);
  void on_settings(Link& l, const Frame& frame);
  void decide(Link& l);  // on membership, once all relevant fields are known
  void add_observer(Link& l);
  void refuse(Link& l, RefusalKind kind, const std::string& text);
  // Compares job, world and build; "" if they agree, with `kind` kMismatch.
  std::string disagreement(const Hello& hello, RefusalKind& kind) const;
  // Returns "" if the rank is free, or held by the same process, which may reconnect until it has
  // acknowledged the start of the group, and continue its session afterwards.
  std::string disagreement_on_rank(const Hello& hello, RefusalKind& kind) const;
  void add_member(Link& l);

  // Members whose connections are silent or broken (server_links.cc).
  std::string disagreement_on_session(const Hello& hello, RefusalKind& kind) const;
  [[nodiscard]] bool may_continue(const Link& l) const;
  MemberDoubt doubt_since(Time since) const;
  NamedPatience patience_for(const Link& l) const;
  void break_off(Link& l, const std::string& cause);
  void check_life(Link& l);
  void examine(Link& l);
  void give_up_on(Link& l, std::string verdict);
  std::string missing_text(const Link& l) const;
  void probe(Link& l);
  void report_doubt(Link& l, const std::string& cause);
  void ask_others(Link& l);
  void on_answer(const Link& from, FrameReader& in);
  static std::string view_of_others(const Link& l);
  std::string reach_text(int from, int rank) const;
  void heard_again(Link& l, const MemberDoubt& doubt);
  void continue_session(Link& l);
  void report_doubt_of_replaced(Link& old);

  // Members (server_members.cc).
  bool is_superseded(const Hello& hello) const;
  bool awaits_reconnection() const;
  void handle_member(Link& l, const Frame& frame);
  void on_leave(Link& l, FrameReader& in);
  void on_abandon(Link& l, FrameReader& in);
  void on_joined();
  void on_lost(Link& l);
  void expire_disconnected(bool paused);
  void declare_failure(const Link& l, const std::string& cause);
  void declare_failure(const Hello& who, const std::string& activity, const std::string& cause);
  void fail_members(int culprit, const GroupFailure& failure, const Link* except);
  void send_root_silent(Link& l);
  void check_all_left();
  void fail_group(RefusalKind kind, const std::string& text);
  void broadcast(std::string frame, const Link* except = nullptr);
  void notify_observers(const std::string& frame);
  std::vector<int> missing() const;   // excludes ranks that have left again
  std::string absence_frame() const;  // missing and departed ranks; empty after the start
  void send_progress();
  void send_departures();
  void send_heartbeat();
  void send_heartbeat_to(Link& l);
  void check_stall();
  void sweep(bool paused);

  // Keys (server_members.cc).
  void handle_request(Link& l, FrameType type, FrameReader& in);
  void set(const std::string& key, std::string value);
  void send_reply(Link& l, std::uint32_t request, const std::string& value);

  const Options options_;
  Time now_, last_tick_;
  std::map<LinkId, Link> links_;  // the oldest first
  std::vector<Link*> members_;    // by rank
  // A rank of the started group whose connection broke before it acknowledged the start, if links
  // have no patience. It receives the start when it reconnects; if it does not, it is declared
  // dead. With patience, its link stays in members_ until then.
  struct Disconnected {
    Hello hello;
    std::string activity, cause;
    Time until{};
    bool given_up = false;
  };
  std::map<int, Disconnected> disconnected_;  // by rank
  // Kept for those that connect later.
  struct Frames {
    std::string start, failure;  // for a rank that reconnects after the start, or the first failure
    std::string status;          // for observers
    std::string fatal;           // for ranks that connect after the group was given up
  };
  Frames frames_;
  bool started_ = false, failed_ = false, all_left_ = false;
  std::set<int> awaited_;                // ranks that have not been notified of a mismatch yet
  std::set<int> left_early_;             // ranks that joined and left before the start
  std::map<int, std::string> departed_;  // the calls of ranks that left, not sent to others yet
  StallDetector stall_watch_;
  struct Keys {
    std::map<std::string, std::string> values;
    std::map<std::string, std::vector<std::pair<Link*, std::uint32_t>>> waiters;
  };
  Keys keys_;
  bool progress_changed_ = false;  // since the last report of missing ranks to the members
  struct NextTimes {
    Time stall_check{}, heartbeat{}, refusal_notice{}, progress{}, departures{};
  };
  NextTimes next_;
  std::string last_refusal_;
  std::vector<Output> output_;
};

}  // namespace backends
