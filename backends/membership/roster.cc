// Implements member look-up and the encoding of rosters.
#include "backends/membership/roster.h"

#include <algorithm>
#include <set>

#include "backends/store/protocol/handshake.h"

namespace backends {
namespace {

constexpr std::size_t kNonceText = 32;

std::string short_text(FrameReader& in) {
  std::string text = in.text();
  if (text.size() > kIdentityTextBytes) throw MalformedFrame();
  return text;
}

std::uint64_t read_u64(FrameReader& in) { return static_cast<std::uint64_t>(in.i64()); }

int read_port(FrameReader& in) {
  const int port = in.i32();
  if (port < 0 || port > 65'535) throw MalformedFrame();
  return port;
}

}  // namespace

const Member* Roster::find(const MemberId& id) const {
  const auto found = std::ranges::find(members, id, &Member::id);
  return found == members.end() ? nullptr : &*found;
}

std::optional<std::size_t> Roster::place_of(const MemberId& id) const {
  const Member* found = find(id);
  if (found == nullptr) return std::nullopt;
  return static_cast<std::size_t>(found - members.data());
}

std::string rank_text(const Roster& roster, std::size_t place) {
  const Member& m = roster.members[place];
  return member_text(static_cast<int>(place), m.host, m.pid);
}

void write_id(FrameWriter& out, const RandomId& id) {
  out.i64(static_cast<std::int64_t>(id.high)).i64(static_cast<std::int64_t>(id.low));
}

RandomId read_id(FrameReader& in) {
  RandomId id;
  id.high = read_u64(in);
  id.low = read_u64(in);
  return id;
}

void write_member(FrameWriter& out, const Member& m) {
  write_id(out, m.id);
  out.text(m.host).text(m.host_id).text(m.address).i32(m.pid).i32(m.port).i32(m.store_port);
  write_id(out, m.acceptor);
  out.i32(m.hint).i64(static_cast<std::int64_t>(m.since));
}

Member read_member(FrameReader& in) {
  Member m;
  m.id = read_id(in);
  for (std::string* text : {&m.host, &m.host_id, &m.address}) *text = short_text(in);
  m.pid = in.i32();
  m.port = read_port(in);
  m.store_port = read_port(in);
  m.acceptor = read_id(in);
  m.hint = in.i32();
  m.since = read_u64(in);
  return m;
}

void write_roster(FrameWriter& out, const RosterPtr& roster) {
  out.i64(static_cast<std::int64_t>(generation_of(roster)));
  if (!roster) return;
  out.text(roster->nonce).u32(static_cast<std::uint32_t>(roster->members.size()));
  for (const Member& m : roster->members) write_member(out, m);
}

RosterPtr read_roster(FrameReader& in) {
  auto roster = std::make_shared<Roster>();
  roster->generation = read_u64(in);
  if (roster->generation == 0) return nullptr;
  roster->nonce = in.text();
  const std::uint32_t count = in.u32();
  if (roster->nonce.size() > kNonceText || count == 0 || count > kMaxMembers)
    throw MalformedFrame();
  for (std::uint32_t i = 0; i < count; ++i) roster->members.push_back(read_member(in));
  std::set<MemberId> ids;
  for (const Member& m : roster->members) {
    if (!m.id.is_set() || !ids.insert(m.id).second) throw MalformedFrame();
  }
  return roster;
}

}  // namespace backends
