// Implements the end of a link by silence, and its continuation over another connection.
#include "backends/store/protocol/member_link.h"

#include <algorithm>
#include <memory>

#include "backends/store/protocol/stall_detector.h"

namespace backends {

// More often than heartbeats, so that a changed activity is sent soon, before this process may die.
std::chrono::milliseconds member_tick_interval(int heartbeat_ms) {
  return std::min(std::chrono::milliseconds(heartbeat_ms), std::chrono::milliseconds(200));
}

MemberLink::MemberLink(FrameParser parser, Seals seals, int heartbeat_ms, Time now,
                       LinkPatience patience)
    : heartbeat_ms_(heartbeat_ms),
      patience_(patience),
      parser_(std::move(parser)),
      seals_(std::move(seals)),
      sent_(patience.time.count() > 0 && patience.port != 0),
      last_received_(now),
      last_tick_(now),
      check_(std::chrono::milliseconds(heartbeat_ms)) {}

void MemberLink::end_link(const std::string& cause) {
  is_over_ = true;
  on_end(cause);
}

void MemberLink::send(const std::string& frame) {
  if (is_over_) return;
  sent_.add(std::make_shared<const std::string>(frame));
  if (!is_broken()) output_ += seals_.to_server.close(frame);
}

void MemberLink::closed(const std::string& cause) {
  if (is_over_ || is_broken()) return;
  if (!may_continue()) return end_link("died: " + cause);
  if (!doubt_) doubt_ = Doubt{.since = last_tick_};
  doubt_->broken = cause;
  check_.reset();
  output_.clear();  // sealed for the connection that has ended
}

void MemberLink::tick(Time now) {
  if (is_over_) return;
  if (now - last_tick_ >
      std::chrono::milliseconds(heartbeat_ms_) + member_tick_interval(heartbeat_ms_)) {
    last_received_ = now;
    check_.reset();
    if (doubt_) doubt_->since = now;
  }
  last_tick_ = now;
  const auto silence = now - last_received_;
  const bool continues = may_continue();
  if (continues && !doubt_ && silence > std::chrono::milliseconds(2 * heartbeat_ms_))
    doubt_ = Doubt{.since = last_received_};
  if (continues && doubt_) return examine(now);
  if (is_broken()) return end_link("died: " + doubt_->broken);
  if (silence > std::chrono::milliseconds(3 * heartbeat_ms_)) root_is_silent();
}

void MemberLink::root_is_silent() {
  // Rank 0 may only be paused: it reads this when it continues, and does not wait for ranks that
  // have left. A rank that does not know of the start joins again.
  if (is_in_session()) send(FrameWriter(FrameType::kRootSilent).finish());
  end_link("does not answer: no heartbeat for " + std::to_string(3 * heartbeat_ms_) + " ms");
}

void MemberLink::examine(Time now) {
  const auto heartbeat = std::chrono::milliseconds(heartbeat_ms_);
  const bool is_silent = now - last_received_ > 3 * heartbeat;
  // Its host is reached, and the process does not run.
  if (is_silent && check_.is_stopped(now))
    return is_broken() ? end_link("died: " + doubt_->broken) : root_is_silent();
  if (check_.is_inconclusive(now)) check_.reset();
  const std::string cause = is_broken() ? doubt_->broken : "no heartbeat";
  const auto patience = patience_with(patience_.time, heartbeat, is_broken());
  if (now - doubt_->since > patience) {
    send(FrameWriter(FrameType::kRootSilent).finish());  // it may still receive from this rank
    return end_link(
        "is unreachable: " + cause + "; no new connection within " +
        stalled_time_text(std::chrono::floor<std::chrono::milliseconds>(patience).count()) + " (" +
        patience_name(patience_.time, heartbeat, is_broken()) + ")");
  }
  // Distinguish a stopped process from a cut before anything is reported.
  if (is_broken() ? now - doubt_->since >= kDoubtReportTime : is_silent && !check_.is_waiting())
    report_doubt(cause);
}

void MemberLink::report_doubt(const std::string& cause) {
  if (std::exchange(doubt_->reported, true)) return;
  notices_.push_back("lost the rendezvous connection to rank 0 (" + cause +
                     "); trying to connect again for up to " +
                     stalled_time_text(patience_.time.count()));
}

void MemberLink::connected_again(Time now) {
  if (doubt_->reported)
    notices_.push_back(
        "the rendezvous connection to rank 0 is back after " +
        stalled_time_text(
            std::chrono::floor<std::chrono::milliseconds>(now - doubt_->since).count()));
  doubt_.reset();
  check_.reset();
}

void MemberLink::attempt_refused() {
  if (!wants_connection()) return;
  end_link("died: " + (is_broken() ? doubt_->broken : std::string("its port refuses connections")));
}

void MemberLink::attempt_rejected(const std::string& text) {
  if (wants_connection()) end_link("does not continue the session: " + text);
}

void MemberLink::continued(FrameParser parser, Seals seals, std::uint64_t peer_received, Time now) {
  if (!wants_connection()) return;
  try {
    sent_.acknowledge(peer_received);
  } catch (const MalformedFrame&) {
    return end_link("has received frames that were not sent");
  }
  report_doubt(is_broken() ? doubt_->broken : "no heartbeat");
  parser_ = std::move(parser);
  seals_ = std::move(seals);
  output_.clear();
  for (const SentFrames::Shared& frame : sent_.kept()) output_ += seals_.to_server.close(*frame);
  last_received_ = now;
  connected_again(now);
}

}  // namespace backends
