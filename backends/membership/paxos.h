// Agreement on the next roster: single-decree Paxos (Lamport, "Paxos Made Simple", 2001), with one
// instance per generation, with one acceptor per host, passive as in Disk Paxos (Gafni and
// Lamport, 2003).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <set>

#include "backends/membership/roster.h"

namespace backends {

struct Ballot {
  std::uint64_t round = 0;  // 0: none
  MemberId proposer;        // prevents two proposers from having the same ballot

  auto operator<=>(const Ballot&) const = default;
};

// The state of a host's acceptor. It always takes part in the instance after the newest decision
// that it knows. A proposal names the decision that it is based on, so an acceptor that has missed
// decisions catches up, and needs no state of earlier instances.
struct AcceptorState {
  RosterPtr decided;  // the newest; none: the job has not been bootstrapped
  Ballot promised;    // lower proposals are rejected
  Ballot accepted;
  RosterPtr value;  // accepted with that ballot

  bool operator==(const AcceptorState&) const = default;  // by identity of rosters
  void learn(const RosterPtr& roster);                    // if it is newer

  enum class Verdict {
    kYes,
    kRejected,  // because of `promised`
    kDecided,   // the instance is over: see `decided`
  };
  // `base`: the roster of the generation before the one to be decided.
  Verdict prepare(const RosterPtr& base, const Ballot& ballot);
  Verdict accept(const RosterPtr& base, const Ballot& ballot, const RosterPtr& proposed);
};

// The acceptor of a host, shared by all processes of the job there.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual AcceptorId id() const = 0;
  // Changes the state while no other process can, and stores it before it returns. Returns false if
  // the acceptor is not available now (a stopped process holds it); then nothing has changed.
  [[nodiscard]] virtual bool update(const std::function<void(AcceptorState&)>& change) = 0;
  // Publishes that this process lives under this id; is_used_by() shows it to the host's other
  // processes.
  virtual void use_as(const MemberId& id) = 0;
  virtual bool is_used_by(const MemberId& id) = 0;
};

// Returns true if these acceptors decide for the members of `base`: more than half of the votes,
// where an acceptor has one for each member of its host, or half of them including the first
// member's. Any two such sets have an acceptor in common.
bool is_quorum(const Roster& base, const std::set<AcceptorId>& acceptors);

}  // namespace backends
