// The members of a generation of an elastic job, in the order that they have agreed on.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/store/protocol/wire.h"

namespace backends {

// 16 random bytes. Nothing but identity: whoever draws it again is somebody else.
struct RandomId {
  std::uint64_t high = 0, low = 0;

  auto operator<=>(const RandomId&) const = default;
  bool is_set() const { return high != 0 || low != 0; }
};
using MemberId = RandomId;
using RegisterId = RandomId;

struct Member {
  MemberId id;
  std::string host, host_id, address;
  int pid = 0;
  int port = 0;             // of its agent
  int store_port = 0;       // of its listener for the store of a generation's group
  RegisterId reg;           // of its host
  int hint = -1;            // the launcher's rank; -1: none
  std::uint64_t since = 0;  // the generation in which it came in
};

inline constexpr std::size_t kMaxMembers = 65'536;

struct Roster {
  std::uint64_t generation = 0;
  std::string nonce;  // random; part of the identity of the generation's group
  std::vector<Member> members;

  // The place of the member; -1: it is none.
  int place_of(const MemberId& id) const;
  bool has(const MemberId& id) const { return place_of(id) >= 0; }
};
using RosterPtr = std::shared_ptr<const Roster>;  // rosters never change

// Returns the generation of the newest roster that is known; 0: none is.
inline std::uint64_t generation_of(const RosterPtr& roster) {
  return roster ? roster->generation : 0;
}

// "rank 1 (host n7, pid 42)".
std::string rank_text(const Roster& roster, std::size_t place);

void write_id(FrameWriter& out, const RandomId& id);
RandomId read_id(FrameReader& in);
void write_member(FrameWriter& out, const Member& member);
Member read_member(FrameReader& in);
void write_roster(FrameWriter& out, const RosterPtr& roster);  // may be none
RosterPtr read_roster(FrameReader& in);                        // all throw MalformedFrame

}  // namespace backends
