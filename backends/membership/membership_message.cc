// Implements the encoding of the agents' messages.
#include "backends/membership/membership_message.h"

namespace backends {
namespace {

using Kind = MembershipMessage::Kind;

void write_ballot(FrameWriter& out, const Ballot& ballot) {
  out.i64(static_cast<std::int64_t>(ballot.round));
  write_id(out, ballot.proposer);
}

Ballot read_ballot(FrameReader& in) {
  Ballot ballot;
  ballot.round = static_cast<std::uint64_t>(in.i64());
  ballot.proposer = read_id(in);
  return ballot;
}

std::uint32_t read_count(FrameReader& in) {
  const std::uint32_t count = in.u32();
  if (count > kMaxMembers) throw MalformedFrame();
  return count;
}

void write_members(FrameWriter& out, const std::vector<Member>& members) {
  out.u32(static_cast<std::uint32_t>(members.size()));
  for (const Member& m : members) write_member(out, m);
}

std::vector<Member> read_members(FrameReader& in) {
  std::vector<Member> members;
  for (std::uint32_t left = read_count(in); left > 0; --left) members.push_back(read_member(in));
  return members;
}

void write_report(FrameWriter& out, const MembershipMessage& m) {
  out.i64(static_cast<std::int64_t>(m.number));
  out.u8(static_cast<std::uint8_t>(m.stage));
  out.u8(m.has_endpoint ? 1 : 0).u8(m.has_state ? 1 : 0);
  out.u32(static_cast<std::uint32_t>(m.receives_from.size()));
  for (std::size_t i = 0; i < m.receives_from.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t bit = 0; bit < 8 && i + bit < m.receives_from.size(); ++bit)
      byte |= m.receives_from[i + bit] ? 1u << bit : 0u;
    out.u8(static_cast<std::uint8_t>(byte));
  }
  out.u32(static_cast<std::uint32_t>(m.receives_from_others.size()));
  for (const MemberId& id : m.receives_from_others) write_id(out, id);
  write_members(out, m.members);
}

void read_report(FrameReader& in, MembershipMessage& m) {
  m.number = static_cast<std::uint64_t>(in.i64());
  const std::uint8_t stage = in.u8();
  if (stage > static_cast<std::uint8_t>(Stage::kWithdrawing)) throw MalformedFrame();
  m.stage = static_cast<Stage>(stage);
  m.has_endpoint = in.u8() != 0;
  m.has_state = in.u8() != 0;
  const std::uint32_t count = read_count(in);
  unsigned byte = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % 8 == 0) byte = in.u8();
    m.receives_from.push_back((byte >> (i % 8) & 1u) != 0);
  }
  for (std::uint32_t left = read_count(in); left > 0; --left)
    m.receives_from_others.push_back(read_id(in));
  m.members = read_members(in);
  if (m.members.size() > 1) throw MalformedFrame();
  if (!m.members.empty() && m.members.front().id != m.from) throw MalformedFrame();
}

void write_answer(FrameWriter& out, const MembershipMessage& m) {
  out.i64(static_cast<std::int64_t>(m.instance));
  write_ballot(out, m.ballot);
  write_ballot(out, m.other);
  write_id(out, m.acceptor);
}

void read_answer(FrameReader& in, MembershipMessage& m) {
  m.instance = static_cast<std::uint64_t>(in.i64());
  m.ballot = read_ballot(in);
  m.other = read_ballot(in);
  m.acceptor = read_id(in);
}

}  // namespace

std::string membership_frame(const MembershipMessage& m) {
  FrameWriter out(static_cast<FrameType>(m.kind));
  write_id(out, m.from);
  write_id(out, m.to);
  out.i64(static_cast<std::int64_t>(m.generation));
  switch (m.kind) {
    case Kind::kReport:
      write_report(out, m);
      break;
    case Kind::kRosterUpdate:
      write_roster(out, m.value);
      write_members(out, m.members);
      break;
    case Kind::kPrepare:
    case Kind::kAccept:
      write_roster(out, m.base);
      write_ballot(out, m.ballot);
      if (m.kind == Kind::kAccept) write_roster(out, m.value);
      break;
    case Kind::kPromise:
    case Kind::kAccepted:
    case Kind::kRejected:
      write_answer(out, m);
      if (m.kind == Kind::kPromise) write_roster(out, m.value);
      break;
  }
  return out.finish();
}

MembershipMessage read_membership_frame(const Frame& frame) {
  FrameReader in(frame.payload);
  MembershipMessage m;
  m.kind = static_cast<Kind>(frame.type);
  m.from = read_id(in);
  m.to = read_id(in);
  m.generation = static_cast<std::uint64_t>(in.i64());
  switch (m.kind) {
    case Kind::kReport:
      read_report(in, m);
      break;
    case Kind::kRosterUpdate:
      m.value = read_roster(in);
      m.members = read_members(in);
      break;
    case Kind::kPrepare:
    case Kind::kAccept:
      m.base = read_roster(in);
      m.ballot = read_ballot(in);
      if (m.kind == Kind::kAccept) m.value = read_roster(in);
      // A proposal is for the generation after its base.
      if (m.kind == Kind::kAccept && generation_of(m.value) != generation_of(m.base) + 1)
        throw MalformedFrame();
      break;
    case Kind::kPromise:
    case Kind::kAccepted:
    case Kind::kRejected:
      read_answer(in, m);
      if (m.kind == Kind::kPromise) m.value = read_roster(in);
      if (m.value && m.value->generation != m.instance) throw MalformedFrame();
      break;
    default:
      throw MalformedFrame();
  }
  if (in.size() != 0 || !m.from.is_set()) throw MalformedFrame();
  return m;
}

}  // namespace backends
