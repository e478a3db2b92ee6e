// The messages between the agents of an elastic job, as frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/membership/paxos.h"
#include "backends/membership/roster.h"
#include "backends/store/protocol/wire.h"

namespace backends {

// How far a process is.
enum class Stage : std::uint8_t {
  kWaiting = 0,  // to be taken in
  kTraining,
  kReady,       // has left its generation's group, and wants the next one
  kLeft,        // has ended in order, as all do
  kWithdrawing  // leaves the others, who go on; its host votes until they have agreed without it
};

struct MembershipMessage {
  // Outside the store's frame types: neither protocol takes the other's frames for its own.
  enum class Kind : std::uint8_t {
    kReport = 64,   // at every heartbeat, and when it changes: where the sender stands
    kRosterUpdate,  // the newest roster, and who waits
    kPrepare,
    kPromise,
    kAccept,
    kAccepted,
    kRejected
  };
  Kind kind = Kind::kReport;
  MemberId from, to;             // `to` is not set where it is for whoever has the door
  std::uint64_t generation = 0;  // the newest that the sender knows

  // kReport. Whom the sender hears: of its generation's members by place, and of others.
  std::uint64_t number = 0;  // grows, so that a late one is known as such
  Stage stage = Stage::kWaiting;
  bool has_door = false;
  bool has_state = false;  // it has taken a step as a member
  std::vector<bool> hears;
  std::vector<MemberId> hears_others;

  std::vector<Member> members;  // kReport: the sender, or none; kRosterUpdate: all that wait

  // The instance: `base` is the roster of the generation before.
  RosterPtr base;
  Ballot ballot;               // the proposal's
  Ballot other;                // kPromise: accepted; kRejected: promised
  RosterPtr value;             // kPromise: accepted; kAccept: proposed; kRosterUpdate: decided
  RegisterId reg;              // of answers
  std::uint64_t instance = 0;  // likewise
};

std::string membership_frame(const MembershipMessage& message);
// Throws MalformedFrame.
MembershipMessage read_membership_frame(const Frame& frame);

}  // namespace backends
