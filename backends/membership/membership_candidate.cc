// Proposes the next roster: decides which member proposes, which members, and when.
#include <algorithm>
#include <limits>
#include <tuple>

#include "backends/membership/membership_machine.h"

namespace backends {
namespace {

constexpr int kMaxBackOff = 8;
constexpr auto kCallInterval = std::chrono::milliseconds(200);

// Launched processes come first, in the launcher's order.
int order_of(const Member& member) {
  return member.hint >= 0 ? member.hint : std::numeric_limits<int>::max();
}

}  // namespace

void MembershipMachine::seek() {
  next_.seek = Time::max();
  if (failure_ || intent_.leaves || !intent_.wants_view) return;
  if (proposal_ && now_ >= proposal_->until) back_off();
  if (is_ready()) {
    seek_as_member();
    // The others may have continued without this process, with new members that it does not know,
    // and may be gone.
    if (is_ready() && !can_reach_quorum()) probe_endpoint();
  } else if (is_waiting()) {
    propose_bootstrap();
    const bool receives_from_a_member =
        roster_ &&
        std::ranges::any_of(roster_->members, [&](const auto& m) { return receives_from(m.id); });
    if (!receives_from_a_member) probe_endpoint();
  }
}

// The process that serves the join endpoint knows the job, or is going to bootstrap it.
void MembershipMachine::probe_endpoint() {
  if (now_ >= next_.endpoint) {
    const std::chrono::milliseconds heartbeat(options_.heartbeat_ms);
    const bool knows_others = is_member() || (has_endpoint_ && !peers_.empty());
    next_.endpoint = now_ + (knows_others ? heartbeat : std::min(kCallInterval, heartbeat));
    output_.push_back({Output::Kind::kSendToEndpoint, {}, report(), ""});
  }
  next_.seek = std::min(next_.seek, next_.endpoint);
}

// ---- Members.

// The first reachable member in order proposes as soon as all members are ready or lost; later
// members propose only if that has no result.
void MembershipMachine::seek_as_member() {
  std::vector<MemberId> ready;
  std::vector<Member> here;
  int place = 0;
  bool before_me = true;
  for (const Member& m : roster_->members) {
    if (m.id == options_.self.id) {
      before_me = false;
      continue;
    }
    if (!is_reachable(m.id)) continue;
    const Peer& peer = peers_.at(m.id);
    if (peer.stage != Stage::kReady || peer.generation != roster_->generation) {
      ready_.members.reset();  // only slow
      return;
    }
    ready.push_back(m.id);
    here.push_back(m);
    place += before_me ? 1 : 0;
  }
  attempts_.place = place;
  if (ready_.members != ready) {
    ready_.members = std::move(ready);
    ready_.since = now_;
  }
  const auto own_time =
      ready_.since + options_.patience * place * std::chrono::milliseconds(options_.heartbeat_ms);
  if (proposal_ || !is_time(own_time)) return;
  std::vector<Member> members = clique({options_.self}, here);
  std::ranges::sort(members, {}, [&](const Member& m) { return roster_->place_of(m.id); });
  members = clique(std::move(members), waiting_members(false));
  lacks_state_ = leaves_the_state(members);
  if (lacks_state_) return;
  if (static_cast<int>(members.size()) >= options_.min_ranks && can_reach_quorum())
    propose(std::move(members));
}

// New members that have not taken a step yet have no state to continue from. They may be more than
// half of the votes, and would start over while the members that have the state are only
// unreachable. So unless those are certainly dead, wait for them.
bool MembershipMachine::leaves_the_state(const std::vector<Member>& chosen) const {
  const auto has_state = [&](const Member& m) {
    if (m.id == options_.self.id) return has_state_;
    const auto peer = peers_.find(m.id);
    return peer != peers_.end() && peer->second.has_state;
  };
  // A member of an earlier generation that has not been heard in this one may have the state.
  const auto may_have_state = [&](const Member& m) {
    const auto peer = peers_.find(m.id);
    const bool has_spoken = peer != peers_.end() && peer->second.generation >= roster_->generation;
    return has_state(m) || (m.since < roster_->generation && !has_spoken);
  };
  if (std::ranges::any_of(chosen, has_state)) return false;
  return std::ranges::any_of(roster_->members, [&](const Member& m) {
    if (std::ranges::find(chosen, m.id, &Member::id) != chosen.end() || !may_have_state(m))
      return false;
    const bool is_here = m.acceptor == options_.acceptor->id();
    const auto peer = peers_.find(m.id);
    return is_here ? options_.acceptor->is_used_by(m.id)
                   : peer == peers_.end() || !peer->second.refused;
  });
}

bool MembershipMachine::is_time(Time at) {
  at = std::max(at, attempts_.next);
  if (now_ >= at) return true;
  next_.seek = std::min(next_.seek, at);
  return false;
}

std::vector<Member> MembershipMachine::waiting_members(bool by_arrival) const {
  std::vector<const Peer*> waiting;
  for (const auto& [id, peer] : peers_) {
    if (waits(peer)) waiting.push_back(&peer);
  }
  std::ranges::sort(waiting, {}, [&](const Peer* p) {
    return std::tuple(order_of(p->member), by_arrival ? p->arrival : 0, p->member.id);
  });
  std::vector<Member> members;
  for (const Peer* p : waiting) members.push_back(p->member);
  return members;
}

bool MembershipMachine::mutually_reachable(const Member& a, const Member& b) const {
  const auto one_way = [&](const Member& from, const Member& to) {
    if (from.id == options_.self.id) return receives_from(to.id);
    const auto peer = peers_.find(from.id);
    return peer != peers_.end() && receives_from(peer->second, to);
  };
  return one_way(a, b) && one_way(b, a);
}

// Returns `chosen` and those of `more`, in order, that are mutually reachable with all chosen
// members.
std::vector<Member> MembershipMachine::clique(std::vector<Member> chosen,
                                              const std::vector<Member>& more) const {
  for (const Member& m : more) {
    if (static_cast<int>(chosen.size()) >= options_.max_ranks) break;
    if (std::ranges::all_of(chosen, [&](const Member& c) { return mutually_reachable(c, m); }))
      chosen.push_back(m);
  }
  return chosen;
}

// ---- Bootstrap.

void MembershipMachine::propose_bootstrap() {
  if (!has_endpoint_ || !options_.may_bootstrap || proposal_ || others_should_bootstrap()) return;
  std::vector<Member> members = clique({options_.self}, waiting_members(true));
  std::ranges::stable_sort(members, {}, order_of);
  std::vector<MemberId> waiting;
  for (const Member& m : members) waiting.push_back(m.id);
  if (waiting != waiting_.members) {
    waiting_.members = std::move(waiting);
    waiting_.since = now_;
  }
  const int size = static_cast<int>(members.size());
  if (size < options_.min_ranks) return;
  const auto last_call =
      std::chrono::milliseconds(size < options_.max_ranks ? options_.last_call_ms : 0);
  if (is_time(waiting_.since + last_call) && (!roster_ || the_old_job_is_dead()))
    propose(std::move(members));
}

// Several processes of a host may serve the join endpoint if they share its socket.
bool MembershipMachine::others_should_bootstrap() const {
  const auto order = [](const Member& m) { return std::tuple(order_of(m), m.id); };
  return std::ranges::any_of(peers_, [&](const auto& entry) {
    const Peer& peer = entry.second;
    return waits(peer) && peer.has_endpoint && mutually_reachable(options_.self, peer.member) &&
           order(peer.member) < order(options_.self);
  });
}

// A job of this host alone without any live process can be bootstrapped again: this host's acceptor
// decides, so no other process can continue the job.
bool MembershipMachine::the_old_job_is_dead() const {
  return std::ranges::none_of(roster_->members, [&](const Member& m) {
    return m.acceptor != options_.acceptor->id() || options_.acceptor->is_used_by(m.id);
  });
}

// ---- Proposals.

bool MembershipMachine::can_reach_quorum() const {
  std::set<AcceptorId> acceptors{options_.acceptor->id()};
  for (const auto& [id, peer] : peers_) {
    if (is_reachable(peer)) acceptors.insert(peer.member.acceptor);
  }
  return is_quorum(*roster_, acceptors);
}

void MembershipMachine::propose(std::vector<Member> members) {
  const RosterPtr base = roster_;
  RosterPtr decided;
  const bool read = options_.acceptor->update([&](AcceptorState& state) {
    decided = state.decided;
    attempts_.round = std::max(attempts_.round, state.promised.round);
  });
  if (read) learn(decided);
  if (roster_ != base) return;
  auto next = std::make_shared<Roster>();
  next->generation = generation_of(base) + 1;
  const RandomId nonce = options_.random();
  FrameWriter text{FrameType{}};
  write_id(text, nonce);
  next->nonce = text.finish().substr(5);  // after the length and the type
  for (Member& m : members) {
    const Member* before = base ? base->find(m.id) : nullptr;
    m.since = before == nullptr ? next->generation : before->since;
  }
  next->members = std::move(members);
  proposal_.emplace();
  proposal_->base = base;
  proposal_->value = next;
  proposal_->ballot = {++attempts_.round, options_.self.id};
  proposal_->until = now_ + 2 * (1 + std::min(attempts_.count, kMaxBackOff)) *
                                std::chrono::milliseconds(options_.heartbeat_ms);
  send_proposal();
}

// Sends to the acceptors that have not granted the proposal yet: on other hosts through any of
// their processes, on this host at once.
void MembershipMachine::send_proposal() {
  const Proposal p = *proposal_;
  MembershipMessage m =
      message(p.accepting ? MembershipMessage::Kind::kAccept : MembershipMessage::Kind::kPrepare);
  m.base = p.base;
  m.ballot = p.ballot;
  if (p.accepting) m.value = p.value;
  const AcceptorId own = options_.acceptor->id();
  if (p.base) {
    for (const auto& [id, peer] : peers_) {
      const AcceptorId& acceptor = peer.member.acceptor;
      const bool votes =
          acceptor != own &&
          std::ranges::find(p.base->members, acceptor, &Member::acceptor) != p.base->members.end();
      if (votes && !p.granted.contains(acceptor) && is_reachable(peer)) send(peer.member, m);
    }
  }
  if (p.granted.contains(own)) return;
  const std::optional<MembershipMessage> mine = answer(m);
  if (!mine) return;
  if (mine->kind == MembershipMessage::Kind::kRejected) return on_rejected(*mine);
  count_vote(*mine);
}

void MembershipMachine::on_proposal(const MembershipMessage& m) {
  // Reply only to a member of the base: no other process sends proposals to other hosts.
  const Member* sender = m.base ? m.base->find(m.from) : nullptr;
  if (sender == nullptr) return;
  if (std::optional<MembershipMessage> reply = answer(m)) send(*sender, std::move(*reply));
}

// Returns this host's vote on a proposal; none if the acceptor is not available.
std::optional<MembershipMessage> MembershipMachine::answer(const MembershipMessage& m) {
  const bool accepts = m.kind == MembershipMessage::Kind::kAccept;
  AcceptorState::Verdict verdict{};
  AcceptorState state;
  const bool kept = options_.acceptor->update([&](AcceptorState& s) {
    verdict = accepts ? s.accept(m.base, m.ballot, m.value) : s.prepare(m.base, m.ballot);
    state = s;
  });
  if (!kept) return std::nullopt;
  learn(state.decided);
  using Kind = MembershipMessage::Kind;
  MembershipMessage reply =
      message(verdict == AcceptorState::Verdict::kDecided    ? Kind::kRosterUpdate
              : verdict == AcceptorState::Verdict::kRejected ? Kind::kRejected
              : accepts                                      ? Kind::kAccepted
                                                             : Kind::kPromise);
  reply.instance = generation_of(m.base) + 1;
  reply.ballot = m.ballot;
  reply.acceptor = options_.acceptor->id();
  if (reply.kind == Kind::kRosterUpdate) {
    reply.value = state.decided;
  } else if (reply.kind == Kind::kRejected) {
    reply.other = state.promised;
  } else if (reply.kind == Kind::kPromise) {
    reply.other = state.accepted;
    reply.value = state.value;
  }
  return reply;
}

void MembershipMachine::count_vote(const MembershipMessage& m) {
  const bool accepted = m.kind == MembershipMessage::Kind::kAccepted;
  if (!proposal_ || proposal_->accepting != accepted || m.ballot != proposal_->ballot ||
      m.instance != generation_of(proposal_->base) + 1)
    return;
  Proposal& p = *proposal_;
  // Propose again the newest value that may have been chosen already.
  if (!accepted && m.value && m.other > p.highest) {
    p.highest = m.other;
    p.value = m.value;
  }
  p.granted.insert(m.acceptor);
  const bool enough =
      p.base ? is_quorum(*p.base, p.granted) : p.granted.contains(options_.acceptor->id());
  if (!enough) return;
  if (accepted) return decided();
  p.accepting = true;
  p.granted.clear();
  send_proposal();
}

void MembershipMachine::on_rejected(const MembershipMessage& m) {
  attempts_.round = std::max(attempts_.round, m.other.round);
  if (proposal_ && m.ballot == proposal_->ballot) back_off();
}

// Abandons the attempt. Each further one has more time, and later members in the order wait longer,
// so that one of them succeeds.
void MembershipMachine::back_off() {
  proposal_.reset();
  attempts_.count = std::min(attempts_.count + 1, kMaxBackOff);
  attempts_.next = now_ + attempts_.count * (1 + attempts_.place) *
                              std::chrono::milliseconds(options_.heartbeat_ms) / 4;
}

void MembershipMachine::decided() {
  learn(RosterPtr(proposal_->value));
  for (const auto& [id, peer] : peers_) send_roster_update(peer.member);
}

}  // namespace backends
