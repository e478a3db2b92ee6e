// The server's members whose connections are silent or broken: probes distinguish a process that
// has ended or stopped from a cut network, and a new connection continues the session.
#include <algorithm>
#include <memory>

#include "backends/store/protocol/server_machine.h"

namespace backends {
namespace {

std::string rank_text(const Hello& who) { return "rank " + std::to_string(who.rank); }

std::string cut_text(int a, int b) {
  return "the link between rank " + std::to_string(std::min(a, b)) + " and rank " +
         std::to_string(std::max(a, b)) + " is cut";
}

std::string time_text(Time::duration time) {
  return stalled_time_text(std::chrono::floor<std::chrono::milliseconds>(time).count());
}

std::string silence_text(Time::duration silence) {
  return "does not answer: no heartbeat for " +
         std::to_string(std::chrono::floor<std::chrono::milliseconds>(silence).count()) + " ms";
}

std::string host_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

bool ServerMachine::may_continue(const Link& l) const {
  const bool over = l.session.leaving && (failed_ || all_left_);
  // The acknowledgement of the start states the port. Until it comes, the member may know
  // of the start and continue, or not know of it and join again.
  const bool answers_probes =
      l.session.acknowledged_start ? l.session.port != 0 : l.hello.rank != 0;
  return started_ && !over && answers_probes && l.session.sent.keeps();
}

MemberDoubt ServerMachine::doubt_since(Time since) const {
  return {.since = since, .check = StopCheck(std::chrono::milliseconds(options_.heartbeat_ms))};
}

// A process that lives connects again at once. One whose kernel has finished its connection has
// probably ended, even if no probe shows it.
// REQUIRES: l.doubt.
NamedPatience ServerMachine::patience_for(const Link& l) const {
  const auto heartbeat = std::chrono::milliseconds(options_.heartbeat_ms);
  const bool has_finished = l.doubt->finished && l.session.reach != ProbeReach::kReached;
  if (has_finished && 3 * heartbeat < options_.link_patience)
    return {3 * heartbeat, "three heartbeats"};
  return {patience_with(options_.link_patience, heartbeat, l.is_broken()),
          patience_name(options_.link_patience, heartbeat, l.is_broken())};
}

void ServerMachine::break_off(Link& l, const std::string& cause) {
  if (!l.doubt) l.doubt = doubt_since(now_);
  l.doubt->broken = cause;
  l.doubt->next_probe = now_;
  l.doubt->check.reset();
  output_.push_back({Output::Kind::kClose, l.id, ""});
}

// The probe starts before the third heartbeat is missed, so that a stopped process is named as
// early as without it.
void ServerMachine::check_life(Link& l) {
  const auto heartbeat = std::chrono::milliseconds(options_.heartbeat_ms);
  const auto silence = now_ - l.last_received;
  if (!may_continue(l)) {
    if (l.is_broken()) l.end = l.doubt->broken;
    if (silence > 3 * heartbeat) l.silent = true;
    return;
  }
  if (!l.doubt && silence > 2 * heartbeat) l.doubt = doubt_since(l.last_received);
  if (l.doubt) examine(l);
}

void ServerMachine::examine(Link& l) {
  MemberDoubt& doubt = *l.doubt;
  const auto heartbeat = std::chrono::milliseconds(options_.heartbeat_ms);
  const bool is_silent = now_ - l.last_received > 3 * heartbeat;
  // Its host is reached, and the process does not run.
  if (is_silent && doubt.check.is_stopped(now_))
    return give_up_on(
        l, l.is_broken() ? "died: " + doubt.broken : silence_text(now_ - l.last_received));
  if (now_ - doubt.since > patience_for(l).time) return give_up_on(l, missing_text(l));
  // Without an answer to a probe, only a new connection shows that the member lives. It may still
  // receive from this side.
  if (is_silent && !l.is_broken() && l.session.reach != ProbeReach::kReached)
    break_off(l, "no heartbeat");
  // Distinguish a stopped process from a cut before anything is reported.
  if (l.is_broken() ? now_ - doubt.since >= kDoubtReportTime
                    : is_silent && !doubt.check.is_waiting()) {
    report_doubt(l, l.is_broken() ? doubt.broken : "no heartbeat");
    ask_others(l);
  }
  if (doubt.check.is_inconclusive(now_)) doubt.check.reset();
  const bool is_due =
      doubt.check.is_waiting() ? doubt.check.ask_for_second(now_) : now_ >= doubt.next_probe;
  if (!is_due) return;
  doubt.next_probe = now_ + heartbeat;
  probe(l);
}

// Describes a member that has not connected again in time.
std::string ServerMachine::missing_text(const Link& l) const {
  const MemberDoubt& doubt = *l.doubt;
  const auto [time, name] = patience_for(l);
  const bool is_unprobed = l.session.reach != ProbeReach::kReached;
  const std::string state = doubt.finished && is_unprobed ? "died: " + doubt.broken
                            : l.is_broken()               ? "is unreachable: " + doubt.broken
                                                          : silence_text(now_ - l.last_received);
  const std::string rest =
      !l.session.acknowledged_start ? "it has not confirmed the start of the group"
      : is_unprobed && !doubt.finished
          ? "rank 0 cannot connect to its host (a router or a firewall is between them), so its "
            "process may be alive"
          : view_of_others(l);
  return state + "; no new connection within " + time_text(time) + " (" + name + ")" +
         after_semicolon(rest);
}

void ServerMachine::give_up_on(Link& l, std::string verdict) {
  l.doubt->verdict = std::move(verdict);
  if (l.is_broken()) {
    l.end = l.doubt->broken;
  } else {
    l.silent = true;
  }
}

// The port is on the host from which it has connected.
void ServerMachine::probe(Link& l) {
  if (l.session.port == 0) return;  // it has not acknowledged the start
  output_.push_back(
      {Output::Kind::kProbe, l.id, host_of(l.peer) + ":" + std::to_string(l.session.port)});
}

void ServerMachine::probed(LinkId link, Probe result, Time now) {
  now_ = now;
  const auto found = links_.find(link);
  if (found == links_.end() || !found->second.alive()) return;
  Link& l = found->second;
  if (result == Probe::kAnswered) l.session.reach = ProbeReach::kReached;
  const bool is_first = l.session.reach == ProbeReach::kUnknown && result != Probe::kAccepted;
  if (is_first) l.session.reach = ProbeReach::kUnreachable;
  if (!l.doubt) return;
  MemberDoubt& doubt = *l.doubt;
  const bool is_reached = l.session.reach == ProbeReach::kReached;
  if (result == Probe::kRefused && (is_reached || (is_first && doubt.finished))) {
    const std::string cause = l.is_broken() ? doubt.broken : "its port refuses connections";
    doubt.broken = cause;
    return give_up_on(l, "died: " + cause);
  }
  if (!is_reached) return;  // a router or a firewall may have accepted or refused
  if (result == Probe::kAccepted) {
    doubt.check.on_accepted(now);
    return;
  }
  doubt.check.reset();
  const auto heartbeat = std::chrono::milliseconds(options_.heartbeat_ms);
  // The network carries what is new, but TCP may repeat the lost heartbeats long after a cut, and
  // the member may receive from this side: it is to connect again.
  if (result == Probe::kAnswered && !l.is_broken() && now - l.last_received > 3 * heartbeat)
    return break_off(l, "no heartbeat");
  doubt.next_probe = now + (result == Probe::kAnswered ? heartbeat : heartbeat / 4);
}

// After a failure the job ends without waiting for any rank.
void ServerMachine::report_doubt(Link& l, const std::string& cause) {
  if (failed_ || std::exchange(l.doubt->reported, true)) return;
  output_.push_back({Output::Kind::kNotice, 0,
                     "lost the rendezvous connection of " + rank_text(l.hello) + " (" + cause +
                         "); waiting for it for up to " + time_text(patience_for(l).time)});
}

// Each member that is heard probes the one in doubt, once. An address that has led rank 0 nowhere
// says nothing to them either.
void ServerMachine::ask_others(Link& l) {
  if (!l.doubt->others.empty() || l.session.reach != ProbeReach::kReached) return;
  const auto frame = std::make_shared<const std::string>(
      FrameWriter(FrameType::kAsk)
          .i32(l.hello.rank)
          .text(host_of(l.peer) + ":" + std::to_string(l.session.port))
          .finish());
  for (Link* m : members_) {
    if (m == nullptr || m == &l || m->hello.rank == 0 || !m->alive() || m->doubt ||
        m->session.leaving || !m->session.acknowledged_start)
      continue;
    l.doubt->others[m->hello.rank] = std::nullopt;
    send(*m, frame);
  }
}

void ServerMachine::on_answer(const Link& from, FrameReader& in) {
  const int rank = in.i32();
  const bool reaches = in.u8() != 0;
  if (rank < 0 || rank >= static_cast<int>(members_.size())) throw MalformedFrame();
  Link* const l = members_[static_cast<std::size_t>(rank)];
  if (l == nullptr || !l->doubt || !l->doubt->others.contains(from.hello.rank)) return;
  const std::string before = view_of_others(*l);
  l->doubt->others[from.hello.rank] = reaches;
  if (const std::string now = view_of_others(*l); now != before && before.empty())
    output_.push_back({Output::Kind::kNotice, 0, now});
}

// "" until one reaches it, or all have answered.
std::string ServerMachine::view_of_others(const Link& l) {
  if (!l.doubt || l.doubt->others.empty()) return "";
  bool all = true;
  for (const auto& [rank, reaches] : l.doubt->others) {
    if (reaches.value_or(false))
      return cut_text(0, l.hello.rank) + ": rank " + std::to_string(rank) + " still reaches both";
    all = all && reaches.has_value();
  }
  return all ? rank_text(l.hello) + " is dead, or its host is cut off: no rank reaches it" : "";
}

// Describes the state of `rank`, to which `from` has no link for data; "" if it is unknown.
std::string ServerMachine::reach_text(int from, int rank) const {
  const bool is_rank = rank >= 0 && rank < static_cast<int>(members_.size()) && rank != from;
  const Link* const l = is_rank ? members_[static_cast<std::size_t>(rank)] : nullptr;
  if (l == nullptr || !l->alive() || l->session.leaving) return "";
  if (l->doubt) return view_of_others(*l);
  return cut_text(from, rank) +
         (from == 0 || rank == 0 ? ": the heartbeats still arrive" : ": rank 0 still reaches both");
}

void ServerMachine::heard_again(Link& l, const MemberDoubt& doubt) {
  if (!doubt.reported) return;
  output_.push_back({Output::Kind::kNotice, 0,
                     "the rendezvous connection of " + rank_text(l.hello) + " is back after " +
                         time_text(now_ - doubt.since)});
}

// Returns "" if the process may continue its session.
std::string ServerMachine::disagreement_on_session(const Hello& h, RefusalKind& kind) const {
  const Link* member = members_[static_cast<std::size_t>(h.rank)];
  if (member != nullptr && is_same_process(member->hello, h) && may_continue(*member) &&
      member->session.sent.has_after(*h.received))
    return "";
  kind = RefusalKind::kOtherJob;
  return member_text(h.rank, h.host, h.pid) +
         " cannot continue its session: the others have declared it dead, or " +
         member_text(0, options_.job.host, options_.job.pid) + " is of another group";
}

// REQUIRES: disagreement_on_session() has found none.
void ServerMachine::continue_session(Link& l) {
  Link*& place = members_[static_cast<std::size_t>(l.hello.rank)];
  Link& old = *place;
  report_doubt_of_replaced(old);
  const MemberDoubt doubt = *std::exchange(old.doubt, std::nullopt);
  l.stage = Link::Stage::kMember;
  l.session = std::exchange(old.session, {});
  old.end = "its process has connected again";
  place = &l;
  // It may have come to another network, or a cut has prevented the first probe.
  if (host_of(l.peer) != host_of(old.peer)) l.session.reach = ProbeReach::kUnknown;
  if (l.session.reach != ProbeReach::kReached) probe(l);
  for (auto& [key, waiters] : keys_.waiters) {
    for (auto& [waiter, request] : waiters) {
      if (waiter == &old) waiter = &l;
    }
  }
  l.session.sent.acknowledge(*l.hello.received);
  put_out(l, welcome_frame(l.session.received));
  for (const SentFrames::Shared& frame : l.session.sent.kept()) put_out(l, *frame);
  send_heartbeat_to(l);
  heard_again(l, doubt);
}

// The member may have noticed first.
void ServerMachine::report_doubt_of_replaced(Link& old) {
  if (!old.doubt) old.doubt = doubt_since(now_);
  report_doubt(old, old.is_broken() ? old.doubt->broken : "it has connected again");
}

}  // namespace backends
