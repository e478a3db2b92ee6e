// Maintains a member's view of the others, and sends them its own state.
#include "backends/membership/membership_machine.h"

#include <algorithm>

namespace backends {
namespace {

constexpr auto kFirstNotice = std::chrono::seconds(1), kNoticeInterval = std::chrono::seconds(5);
constexpr int kLeaveHeartbeats = 5, kWithdrawHeartbeats = 30;

}  // namespace

MembershipMachine::MembershipMachine(Options options, Time now)
    : options_(std::move(options)),
      now_(now),
      last_tick_(now),
      next_{.heartbeat = now, .endpoint = now, .notice = now + kFirstNotice},
      intent_{.waits_since = now},
      waiting_{.since = now} {
  options_.acceptor->use_as(options_.self.id);
  read_acceptor();
}

// ---- Events.

void MembershipMachine::received(const MembershipMessage& m, Time now) {
  now_ = now;
  if (m.from == options_.self.id) return;
  if (m.to.is_set() && m.to != options_.self.id) {
    // For a former id of this process. The sender's host may have missed later decisions.
    if (m.kind == MembershipMessage::Kind::kReport) catch_up(m);
    return;
  }
  if (const auto peer = peers_.find(m.from); peer != peers_.end()) {
    peer->second.heard = true;
    peer->second.refused = false;
    peer->second.last_heard = now;
  }
  switch (m.kind) {
    case MembershipMessage::Kind::kReport:
      on_report(m);
      break;
    case MembershipMessage::Kind::kRosterUpdate:
      return on_roster_update(m);
    case MembershipMessage::Kind::kPrepare:
    case MembershipMessage::Kind::kAccept:
      return on_proposal(m);
    case MembershipMessage::Kind::kPromise:
    case MembershipMessage::Kind::kAccepted:
      return count_vote(m);
    case MembershipMessage::Kind::kRejected:
      return on_rejected(m);
  }
}

void MembershipMachine::refused(const MemberId& id, Time now) {
  now_ = now;
  if (const auto peer = peers_.find(id); peer != peers_.end()) peer->second.refused = true;
}

void MembershipMachine::set_endpoint_held(bool held, Time now) {
  now_ = now;
  if (held && !has_endpoint_) waiting_.since = now;
  reports_.due = reports_.due || held != has_endpoint_;
  has_endpoint_ = held;
}

void MembershipMachine::on_self_connection(Time now) {
  constexpr auto kSoon = std::chrono::milliseconds(10);
  now_ = now;
  next_.endpoint = now + kSoon;
  next_.seek = std::min(next_.seek, next_.endpoint);
}

void MembershipMachine::want_view(Time now) {
  now_ = now;
  intent_.wants_view = true;
  intent_.waits_since = now;
  next_.notice = now + (taken_ == 0 ? kFirstNotice : kNoticeInterval);
  reports_.due = true;
}

void MembershipMachine::took_step(std::uint64_t generation, Time now) {
  now_ = now;
  const Member* self = roster_ ? roster_->find(options_.self.id) : nullptr;
  // Ignore a member that was removed in the meantime, and has another identity.
  if (has_state_ || generation != taken_ || self == nullptr || self->since > generation) return;
  has_state_ = true;
  reports_.due = true;
}

void MembershipMachine::leave(Time now) {
  now_ = now;
  intent_.leaves = true;
  intent_.wants_view = false;
  intent_.leave_until = now + kLeaveHeartbeats * std::chrono::milliseconds(options_.heartbeat_ms);
  reports_.due = true;
}

// The process stays until the others have agreed: they may need the votes of its host.
void MembershipMachine::withdraw(Time now) {
  leave(now);
  intent_.withdraws = true;
  intent_.leave_until =
      now + kWithdrawHeartbeats * std::chrono::milliseconds(options_.heartbeat_ms);
}

void MembershipMachine::tick(Time now) {
  now_ = now;
  const std::chrono::milliseconds heartbeat(options_.heartbeat_ms);
  if (now - last_tick_ > heartbeat + std::chrono::milliseconds(250)) {
    for (auto& [id, peer] : peers_) peer.last_heard = now;
  }
  last_tick_ = now;
  const bool beats = now >= next_.heartbeat;
  if (beats) {
    next_.heartbeat = now + heartbeat;
    forget_non_members();
    if (!is_member() || is_ready()) read_acceptor();
    if (proposal_) send_proposal();
    // A new process at a free join endpoint learns of the job before it bootstraps another.
    if (should_publish_endpoint() && !has_endpoint_)
      output_.push_back({Output::Kind::kSendToEndpoint, {}, report(), ""});
  }
  note_changes();
  give_up_when_due();
  seek();
  if (std::exchange(reports_.due, false) || beats) broadcast_reports();
}

MembershipMachine::Time MembershipMachine::next_tick() const {
  Time next = next_.heartbeat;
  if (proposal_) next = std::min(next, proposal_->until);
  return std::max(std::min(next, next_.seek), now_);
}

RosterPtr MembershipMachine::take_view() {
  if (!intent_.wants_view || !has_new_view()) return nullptr;
  intent_.wants_view = false;
  taken_ = roster_->generation;
  left_behind_ = false;
  reports_.due = true;
  return roster_;
}

// ---- Messages.

MembershipMessage MembershipMachine::message(MembershipMessage::Kind kind) const {
  MembershipMessage m;
  m.kind = kind;
  m.from = options_.self.id;
  m.generation = generation_of(roster_);
  return m;
}

Stage MembershipMachine::stage() const {
  if (intent_.leaves) return intent_.withdraws ? Stage::kWithdrawing : Stage::kLeft;
  if (!is_member()) return Stage::kWaiting;
  return is_ready() ? Stage::kReady : Stage::kTraining;
}

MembershipMessage MembershipMachine::report() {
  MembershipMessage m = message(MembershipMessage::Kind::kReport);
  m.number = ++reports_.number;
  m.stage = stage();
  m.has_endpoint = has_endpoint_ && options_.may_bootstrap;
  m.has_state = has_state_;
  if (roster_) {
    for (const Member& member : roster_->members)
      m.receives_from.push_back(receives_from(member.id));
  }
  for (const MemberId& id : reports_.heard) {
    if (!roster_ || !roster_->has(id)) m.receives_from_others.push_back(id);
  }
  m.members.push_back(options_.self);  // allows a member that has forgotten this one to answer
  return m;
}

void MembershipMachine::send(const Member& to, MembershipMessage m) {
  m.to = to.id;
  output_.push_back({Output::Kind::kSend, to, std::move(m), ""});
}

void MembershipMachine::send_report(const Member& to) { send(to, report()); }

void MembershipMachine::send_roster_update(const Member& to) {
  MembershipMessage m = message(MembershipMessage::Kind::kRosterUpdate);
  m.value = roster_;
  for (const auto& [id, peer] : peers_) {
    if (waits(peer) && id != to.id) m.members.push_back(peer.member);
  }
  send(to, std::move(m));
}

void MembershipMachine::broadcast_reports() {
  // A process that neither has nor wants a view sends no reports.
  if (stage() == Stage::kWaiting && !intent_.wants_view) return;
  const MembershipMessage whole = report();
  MembershipMessage brief = whole;
  brief.members.clear();
  output_.reserve(output_.size() + peers_.size());
  for (const auto& [id, peer] : peers_) {
    if (peer.stage == Stage::kLeft && stage() == Stage::kWaiting) continue;
    const bool is_known = whole.stage == Stage::kTraining && peer.heard && is_reachable(peer);
    send(peer.member, is_known ? brief : whole);
  }
}

void MembershipMachine::on_report(const MembershipMessage& m) {
  auto found = peers_.find(m.from);
  if (found == peers_.end()) {
    if (m.members.empty() || m.stage != Stage::kWaiting) return catch_up(m);
    find_or_add_peer(m.members.front()).heard = true;
    found = peers_.find(m.from);
    send_report(found->second.member);
  }
  Peer& peer = found->second;
  if (m.number < peer.reports) return;  // overtaken by a newer one
  peer.reports = m.number;
  reports_.due = reports_.due || peer.stage != m.stage;
  peer.stage = m.stage;
  peer.has_endpoint = m.has_endpoint;
  peer.has_state = m.has_state;
  peer.generation = m.generation;
  peer.receives_from = m.receives_from;
  peer.receives_from_others = m.receives_from_others;
  // Tell a waiting process about the other waiting ones: they may be members next.
  const bool misses_others =
      m.stage == Stage::kWaiting && std::ranges::any_of(peers_, [&](auto& p) {
        return p.first != m.from && waits(p.second) && p.second.heard &&
               !receives_from(peer, p.second.member);
      });
  if (misses_others && m.generation == generation_of(roster_)) send_roster_update(peer.member);
  catch_up(m);
}

// Sends the newest roster, or requests it, if one of the two processes does not know it.
void MembershipMachine::catch_up(const MembershipMessage& m) {
  if (m.members.empty()) return;
  if (m.generation < generation_of(roster_)) {
    send_roster_update(m.members.front());
  } else if (m.generation > generation_of(roster_)) {
    send_report(m.members.front());
  }
}

void MembershipMachine::on_roster_update(const MembershipMessage& m) {
  learn(m.value);
  if (!intent_.wants_view) return;
  for (const Member& member : m.members) {
    if (member.id == options_.self.id || peers_.contains(member.id)) continue;
    send_report(find_or_add_peer(member).member);
  }
}

MembershipMachine::Peer& MembershipMachine::find_or_add_peer(const Member& member) {
  const auto [peer, is_new] = peers_.try_emplace(member.id);
  peer->second.member = member;
  if (is_new) {
    peer->second.last_heard = now_;
    peer->second.arrival = ++arrivals_;
  }
  return peer->second;
}

// ---- Knowledge.

void MembershipMachine::learn(const RosterPtr& roster) {
  if (generation_of(roster) <= generation_of(roster_)) return;
  const bool was_member = is_member();
  if (was_member && !roster->has(options_.self.id) && !intent_.leaves) {
    // It can join again only as a new member, whose state does not count.
    left_behind_ = !intent_.wants_view;
    has_state_ = false;
    options_.self.id = options_.random();
    options_.acceptor->use_as(options_.self.id);
    if (intent_.wants_view) intent_.waits_since = now_;
  }
  roster_ = roster;
  proposal_.reset();
  attempts_.count = 0;
  attempts_.next = now_;
  ready_.members.reset();
  for (const Member& m : roster->members) {
    if (m.id == options_.self.id) continue;
    Peer& peer = find_or_add_peer(m);
    // The first message of a new member may be late.
    if (m.since == roster->generation) peer.last_heard = now_;
  }
  // Store it for new processes of this host. Safety does not need this: the roster is decided.
  (void)options_.acceptor->update([&](AcceptorState& state) { state.learn(roster); });
  reports_.due = true;
}

void MembershipMachine::read_acceptor() {
  RosterPtr decided;
  if (options_.acceptor->update([&](AcceptorState& state) { decided = state.decided; }))
    learn(decided);
}

bool MembershipMachine::is_reachable(const Peer& peer) const {
  return !peer.refused &&
         now_ - peer.last_heard <= 3 * std::chrono::milliseconds(options_.heartbeat_ms);
}

bool MembershipMachine::is_reachable(const MemberId& id) const {
  if (id == options_.self.id) return true;
  const auto peer = peers_.find(id);
  return peer != peers_.end() && is_reachable(peer->second) && peer->second.stage != Stage::kLeft &&
         peer->second.stage != Stage::kWithdrawing;
}

bool MembershipMachine::receives_from(const MemberId& id) const {
  if (id == options_.self.id) return true;
  const auto peer = peers_.find(id);
  return peer != peers_.end() && peer->second.heard && is_reachable(peer->second);
}

bool MembershipMachine::receives_from(const Peer& peer, const Member& m) const {
  if (peer.member.id == m.id) return true;
  if (roster_ && peer.generation == roster_->generation) {
    if (const auto place = roster_->place_of(m.id))
      return *place < peer.receives_from.size() && peer.receives_from[*place];
  }
  return std::ranges::find(peer.receives_from_others, m.id) != peer.receives_from_others.end();
}

bool MembershipMachine::waits(const Peer& peer) const {
  return peer.stage == Stage::kWaiting && is_reachable(peer) &&
         !(roster_ && roster_->has(peer.member.id));
}

void MembershipMachine::forget_non_members() {
  std::erase_if(peers_, [&](const auto& entry) {
    return !(roster_ && roster_->has(entry.first)) &&
           (!is_reachable(entry.second) || entry.second.stage != Stage::kWaiting);
  });
}

// The others base decisions on the members that this process receives from, so it reports changes
// at once.
void MembershipMachine::note_changes() {
  const auto is_heard = [&](const Peer& peer) { return peer.heard && is_reachable(peer); };
  std::size_t heard = 0;  // usually the lists are equal, and nothing has to be allocated
  bool same = true;
  for (const auto& [id, peer] : peers_) {
    if (!is_heard(peer)) continue;
    same = same && heard < reports_.heard.size() && reports_.heard[heard] == id;
    ++heard;
  }
  if (same && heard == reports_.heard.size()) return;
  reports_.heard.clear();
  for (const auto& [id, peer] : peers_)
    if (is_heard(peer)) reports_.heard.push_back(id);
  reports_.due = true;
}

bool MembershipMachine::join_wanted() const {
  if (!is_member() || intent_.leaves ||
      static_cast<int>(roster_->members.size()) >= options_.max_ranks)
    return false;
  return std::ranges::any_of(peers_, [&](const auto& entry) {
    return waits(entry.second) && std::ranges::all_of(roster_->members, [&](const Member& m) {
             return mutually_reachable(m, entry.second.member);
           });
  });
}

std::optional<std::string> MembershipMachine::broken() const {
  if (taken_ == 0 || intent_.wants_view || intent_.leaves) return std::nullopt;
  if (left_behind_) return "the others have gone on without this process";
  if (roster_->generation > taken_) return "the others have agreed on another generation";
  for (std::size_t place = 0; place < roster_->members.size(); ++place) {
    const Member& m = roster_->members[place];
    if (m.id == options_.self.id) continue;
    const auto peer = peers_.find(m.id);
    const char* what = nullptr;
    if (peer == peers_.end() || peer->second.refused) {
      what = " died: its connection closed";
    } else if (!is_reachable(peer->second)) {
      what = " died: silence";
    } else if (peer->second.stage == Stage::kLeft) {
      what = " has left";
    } else if (peer->second.stage == Stage::kWithdrawing) {
      what = " leaves";
    } else if (peer->second.generation == taken_ && peer->second.stage == Stage::kReady) {
      what = " asks for the next generation";
    }
    if (what != nullptr) return rank_text(*roster_, place) + what;
  }
  return std::nullopt;
}

// A waiting process that may not bootstrap a job would only block those that may.
bool MembershipMachine::should_claim_endpoint() const {
  return !has_endpoint_ && !intent_.leaves &&
         (is_member() || (is_waiting() && options_.may_bootstrap));
}

bool MembershipMachine::is_endpoint_held() const {
  return has_endpoint_ || std::ranges::any_of(peers_, [](const auto& entry) {
           return entry.second.has_endpoint && entry.second.heard;
         });
}

bool MembershipMachine::should_publish_endpoint() const {
  return is_member() && !intent_.leaves && roster_->members.front().id == options_.self.id;
}

bool MembershipMachine::may_end() const {
  if (!intent_.leaves || now_ >= intent_.leave_until || !is_member()) return true;
  return std::ranges::all_of(roster_->members, [&](const Member& m) {
    return m.id == options_.self.id || !is_reachable(m.id);
  });
}

// ---- Waiting for a view.

std::string MembershipMachine::lost_text() const {
  std::string text;
  int reached = 0, lost = 0;
  for (std::size_t place = 0; place < roster_->members.size(); ++place) {
    if (is_reachable(roster_->members[place].id)) {
      ++reached;
    } else if (++lost <= 8) {
      text += (lost > 1 ? ", " : "") + rank_text(*roster_, place);
    }
  }
  if (lost > 8) text += ", ...";
  return std::to_string(reached) + " of " + std::to_string(roster_->members.size()) +
         " ranks are reachable" + (lost > 0 ? " (lost: " + text + ")" : "");
}

std::string MembershipMachine::slow_text() const {
  std::string text;
  if (!is_ready()) return text;
  for (std::size_t place = 0; place < roster_->members.size(); ++place) {
    const MemberId& id = roster_->members[place].id;
    const auto peer = peers_.find(id);
    if (peer == peers_.end() || !is_reachable(id)) continue;
    if (peer->second.stage == Stage::kReady && peer->second.generation == roster_->generation)
      continue;
    text += (text.empty() ? "" : ", ") + rank_text(*roster_, place);
  }
  return text;
}

std::string MembershipMachine::waiting_for() const {
  if (is_ready()) {
    if (const std::string slow = slow_text(); !slow.empty())
      return "waiting for ranks that have not noticed yet that the group ended: " + slow;
    if (!can_reach_quorum())
      return lost_text() + "; the others may continue without this rank: waiting for them";
    if (lacks_state_)
      return lost_text() + "; none of these has the job's state yet: waiting for them";
    const auto reached =
        std::ranges::count_if(roster_->members,
                              [&](const Member& m) { return receives_from(m.id); }) +
        std::ranges::count_if(peers_, [&](const auto& entry) { return waits(entry.second); });
    if (reached < options_.min_ranks)
      return lost_text() + ", and " + std::to_string(options_.min_ranks) +
             " are needed: waiting for new ones";
    return "waiting for the ranks to agree on the next members";
  }
  const auto here =
      1 + std::ranges::count_if(peers_, [&](const auto& entry) { return waits(entry.second); });
  if (!roster_)
    return "waiting for the other ranks: " + std::to_string(here) + " of at least " +
           std::to_string(options_.min_ranks) + " are here" +
           (here >= options_.min_ranks && here < options_.max_ranks
                ? ", and for a moment up to " + std::to_string(options_.max_ranks) +
                      " are waited for"
                : "") +
           (has_endpoint_ || here > 1 ? "" : ", and no process answers at the job's address");
  if (std::ranges::none_of(roster_->members, [&](const Member& m) { return receives_from(m.id); }))
    return "the job's last known ranks do not answer (" + rank_text(*roster_, 0) +
           (roster_->members.size() > 1 ? ", ..." : "") +
           "); if they are gone for good, start the job again under another --job-id";
  if (static_cast<int>(roster_->members.size()) >= options_.max_ranks)
    return "all " + std::to_string(options_.max_ranks) + " places of the job are taken";
  return "waiting to be taken into the job";
}

// Members leave when all have finished; a process that missed this, or wants to join, is too late.
bool MembershipMachine::job_has_ended() const {
  return roster_ && std::ranges::any_of(roster_->members, [&](const Member& m) {
           const auto peer = peers_.find(m.id);
           return peer != peers_.end() && peer->second.stage == Stage::kLeft;
         });
}

void MembershipMachine::give_up_when_due() {
  if (!intent_.wants_view || failure_ || has_new_view()) return;
  if (job_has_ended()) {
    failure_ = "the job has ended: its ranks have finished and left";
    return;
  }
  // Wait for slow members while they are heard.
  if (!slow_text().empty()) intent_.waits_since = now_;
  const auto waited = now_ - intent_.waits_since;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  if (waited >= std::chrono::milliseconds(options_.give_up_ms)) {
    failure_ = "in no group of ranks after " + std::to_string(seconds) + " s: " + waiting_for();
  } else if (now_ >= next_.notice) {
    next_.notice = now_ + kNoticeInterval;
    output_.push_back({Output::Kind::kNotice, {}, {}, waiting_for()});
  }
}

}  // namespace backends
