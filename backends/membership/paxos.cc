// Implements the acceptor's rules and the definition of a quorum.
#include "backends/membership/paxos.h"

namespace backends {

void AcceptorState::learn(const RosterPtr& roster) {
  if (generation_of(roster) <= generation_of(decided)) return;
  *this = {.decided = roster, .promised = {}, .accepted = {}, .value = nullptr};
}

AcceptorState::Verdict AcceptorState::prepare(const RosterPtr& base, const Ballot& ballot) {
  learn(base);
  if (generation_of(decided) > generation_of(base)) return Verdict::kDecided;
  if (ballot < promised) return Verdict::kRejected;
  promised = ballot;
  return Verdict::kYes;
}

AcceptorState::Verdict AcceptorState::accept(const RosterPtr& base, const Ballot& ballot,
                                             const RosterPtr& proposed) {
  const Verdict verdict = prepare(base, ballot);
  if (verdict != Verdict::kYes) return verdict;
  accepted = ballot;
  value = proposed;
  return verdict;
}

bool is_quorum(const Roster& base, const std::set<AcceptorId>& acceptors) {
  std::size_t votes = 0;
  for (const Member& m : base.members)
    if (acceptors.contains(m.acceptor)) ++votes;
  if (2 * votes == base.members.size()) return acceptors.contains(base.members.front().acceptor);
  return 2 * votes > base.members.size();
}

}  // namespace backends
