// Defines the members of a generation of an elastic job, in the order that they have agreed on.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/store/protocol/wire.h"

namespace backends {

// 16 random bytes that serve as identity: a new draw is a new identity.
struct RandomId {
  std::uint64_t high = 0, low = 0;

  auto operator<=>(const RandomId&) const = default;
  bool is_set() const { return high != 0 || low != 0; }
};
using MemberId = RandomId;
using AcceptorId = RandomId;

struct Member {
  MemberId id;
  std::string host, host_id, address;
  int pid = 0;
  int port = 0;             // its agent's port
  int store_port = 0;       // port of its listener for the store of a generation's group
  AcceptorId acceptor;      // its host's acceptor
  int hint = -1;            // the launcher's rank; -1: none
  std::uint64_t since = 0;  // the generation in which it joined
};

inline constexpr std::size_t kMaxMembers = 65'536;

struct Roster {
  std::uint64_t generation = 0;
  std::string nonce;  // random; part of the identity of the generation's group
  std::vector<Member> members;

  // Return the member and its place; none if it is not a member.
  const Member* find(const MemberId& id) const;
  std::optional<std::size_t> place_of(const MemberId& id) const;
  bool has(const MemberId& id) const { return find(id) != nullptr; }
};
using RosterPtr = std::shared_ptr<const Roster>;  // rosters never change

// Returns the generation of this roster; 0: no roster.
inline std::uint64_t generation_of(const RosterPtr& roster) {
  return roster ? roster->generation : 0;
}

// Returns e.g. "rank 1 (host n7, pid 42)".
std::string rank_text(const Roster& roster, std::size_t place);

void write_id(FrameWriter& out, const RandomId& id);
RandomId read_id(FrameReader& in);
void write_member(FrameWriter& out, const Member& member);
Member read_member(FrameReader& in);
void write_roster(FrameWriter& out, const RosterPtr& roster);  // null is allowed
RosterPtr read_roster(FrameReader& in);                        // all readers throw MalformedFrame

}  // namespace backends
