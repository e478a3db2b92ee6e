// Sends a member's frames, and handles those of rank 0.
#include "backends/store/protocol/member_machine.h"

#include "backends/store/protocol/handshake.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr std::size_t kActivityBytes = 200, kReasonBytes = 2000;
constexpr std::size_t kMinPeerBytes = 12;  // in the list of members: two lengths and a pid

std::string abandon_frame(const GroupFailure& why) {
  return FrameWriter(FrameType::kAbandon)
      .u8(why.mismatch ? 1 : 0)
      .text(std::string_view(why.text).substr(0, kReasonBytes))
      .finish();
}

}  // namespace

MemberMachine::MemberMachine(FrameParser parser, Seals seals, int heartbeat_ms, Time now,
                             LinkPatience patience)
    : MemberLink(std::move(parser), std::move(seals), heartbeat_ms, now, patience),
      next_heartbeat_(now) {}

void MemberMachine::received(std::string_view bytes, Time now) {
  receive(bytes, now, [this](const Frame& frame) { handle(frame); });
}

// The start takes effect only now: before rank 0 has the acknowledgement, this process may
// reconnect, and afterwards it may not.
void MemberMachine::sent() {
  if (starting_ && !has_output() && !is_over()) state_.started = true;
}

// Before the start this process joins again instead.
bool MemberMachine::is_in_session() const {
  return state_.started && !state_.left && !state_.failure && !ended_;
}

bool MemberMachine::heartbeat_due(Time now) const {
  return !is_over() && !is_broken() &&
         (now >= next_heartbeat_ || state_.activity != last_activity_sent_);
}

void MemberMachine::heartbeat(const RankProgress& progress, Time now) {
  next_heartbeat_ = now + std::chrono::milliseconds(heartbeat_ms());
  last_activity_sent_ = state_.activity;
  send(FrameWriter(FrameType::kHeartbeat)
           .text(state_.activity)
           .u32(static_cast<std::uint32_t>(progress.waiting_ms))
           .text(progress.call)
           .text(progress.links)
           .i64(static_cast<std::int64_t>(received_frames()))
           .finish());
}

void MemberMachine::set_activity(std::string_view activity) {
  state_.activity.assign(activity.substr(0, kActivityBytes));
}

std::optional<std::uint32_t> MemberMachine::request(FrameType type, std::string_view key,
                                                    const std::function<void(FrameWriter&)>& rest) {
  const std::uint32_t id = next_request_++;
  FrameWriter w(type);
  w.u32(id).text(key);
  rest(w);
  const std::string frame = w.finish();
  if (frame.size() > kFrameBytes) return std::nullopt;
  replies_.emplace(id, std::nullopt);
  send(frame);
  return id;
}

void MemberMachine::leave(const std::string& calls) {
  if (state_.leaving || state_.failure) return;
  state_.leaving = true;
  send(FrameWriter(FrameType::kLeave).text(calls).finish());
}

void MemberMachine::abandon(const GroupFailure& why, int own_rank) {
  if (state_.leaving || state_.failure || !state_.started) return;
  state_.leaving = true;
  own_rank_ = own_rank;
  own_reason_ = base::escape_text(std::string_view(why.text).substr(0, kReasonBytes));
  send(abandon_frame(why));
}

void MemberMachine::end() {
  ended_ = true;
  if (state_.lost) return;
  const bool orderly = state_.leaving || state_.failure || !state_.started;
  send(orderly ? FrameWriter(FrameType::kLeave).text("").finish() : abandon_frame({}));
}

void MemberMachine::handle(const Frame& frame) {
  FrameReader in(frame.payload);
  switch (frame.type) {
    case FrameType::kStart:
      return handle_start(in);
    case FrameType::kFailure: {
      const int rank = in.i32();
      const bool mismatch = in.u8() != 0;
      std::string text = base::escape_text(in.text());
      // Rank 0 reports it to all ranks, for which it names this one.
      if (rank == own_rank_ && text.find(early_end_text(own_reason_)) != std::string::npos)
        text = own_reason_;
      if (!state_.failure) state_.failure = Failure{rank, {std::move(text), mismatch}};
      return;
    }
    case FrameType::kNotice:
      add_notice(base::escape_text(in.text()));
      return;
    case FrameType::kAsk: {
      const int rank = in.i32();
      questions_.push_back({rank, in.text()});
      return;
    }
    case FrameType::kReply: {
      const auto found = replies_.find(in.u32());
      if (found != replies_.end()) found->second = in.text();
      return;
    }
    case FrameType::kProgress:
      state_.absent.missing = read_ranks(in);
      state_.absent.left = read_ranks(in);
      return;
    case FrameType::kFatal: {
      const auto kind = static_cast<RefusalKind>(in.u8());
      state_.fatal.emplace(kind, in.text());
      return;
    }
    case FrameType::kHeartbeat:
      root_activity_ = base::escape_text(in.text());
      sent_frames().acknowledge(static_cast<std::uint64_t>(in.i64()));
      return;
    case FrameType::kLeft:
      state_.left = true;
      return;
    case FrameType::kDeparted:
      for (std::uint32_t left = in.u32(); left > 0; --left) {
        const int rank = in.i32();
        departures_.push_back({rank, in.text()});
      }
      return;
    default:
      throw MalformedFrame();
  }
}

void MemberMachine::answer(int rank, bool reaches) {
  send(FrameWriter(FrameType::kAnswer).i32(rank).u8(reaches ? 1 : 0).finish());
}

void MemberMachine::handle_start(FrameReader& in) {
  std::string nonce = in.bytes(kNonceBytes);
  const std::uint32_t count = in.u32();
  if (count > in.size() / kMinPeerBytes) throw MalformedFrame();
  std::vector<PeerInfo> peers(count);
  int rank = 0;
  for (PeerInfo& peer : peers) {
    peer.rank = rank++;
    peer.host = base::escape_text(in.text());
    peer.host_id = in.text();
    peer.pid = in.i32();
  }
  send(FrameWriter(FrameType::kStartAcknowledged).i32(port()).finish());
  state_.peers = std::move(peers);
  state_.group_nonce = std::move(nonce);
  state_.absent = {};
  starting_ = true;
}

void MemberMachine::on_end(const std::string& cause) {
  state_.lost = cause;
  if (!state_.started || state_.left || state_.leaving || ended_ || state_.failure ||
      state_.peers.empty())
    return;
  const std::string root = member_text(0, state_.peers[0].host, state_.peers[0].pid);
  state_.failure = Failure{0, {member_failure_text(root, cause, root_activity_)}};
}

}  // namespace backends
