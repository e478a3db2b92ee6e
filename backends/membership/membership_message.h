// Defines the messages between the agents of an elastic job, as frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/membership/paxos.h"
#include "backends/membership/roster.h"
#include "backends/store/protocol/wire.h"

namespace backends {

// The stage of a process.
enum class Stage : std::uint8_t {
  kWaiting = 0,  // to join
  kTraining,
  kReady,       // has left its generation's group, and wants the next one
  kLeft,        // has ended in order, as all ranks do
  kWithdrawing  // leaves while the others continue; its host votes until they agree
};

struct MembershipMessage {
  // The values lie outside the store's frame types: neither protocol accepts the other's frames.
  enum class Kind : std::uint8_t {
    kReport = 64,   // the sender's state, at every heartbeat and on changes
    kRosterUpdate,  // the newest roster, and the waiting processes
    kPrepare,
    kPromise,
    kAccept,
    kAccepted,
    kRejected
  };
  Kind kind = Kind::kReport;
  MemberId from, to;  // `to` is not set if the receiver is the process at the join endpoint
  std::uint64_t generation = 0;  // the newest that the sender knows

  // kReport: the processes that the sender receives from: members of its generation by place, and
  // others.
  std::uint64_t number = 0;  // grows, so that a late report is recognized
  Stage stage = Stage::kWaiting;
  bool has_endpoint = false;
  bool has_state = false;  // the sender has taken a step as a member
  std::vector<bool> receives_from;
  std::vector<MemberId> receives_from_others;

  std::vector<Member> members;  // kReport: the sender, or none; kRosterUpdate: those that wait

  // The instance: `base` is the roster of the previous generation.
  RosterPtr base;
  Ballot ballot;               // the proposal's
  Ballot other;                // kPromise: accepted; kRejected: promised
  RosterPtr value;             // kPromise: accepted; kAccept: proposed; kRosterUpdate: decided
  AcceptorId acceptor;         // for replies
  std::uint64_t instance = 0;  // for replies
};

std::string membership_frame(const MembershipMessage& message);
// Throws MalformedFrame.
MembershipMessage read_membership_frame(const Frame& frame);

}  // namespace backends
