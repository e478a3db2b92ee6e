// Implements the status feed.
#include "backends/store/status_feed.h"

#include <poll.h>

#include "backends/backend_error.h"
#include "io/base/text/escape_text.h"

namespace backends {

StatusFeed::StatusFeed(const Endpoint& server, const Secret& secret, Deadline deadline)
    : server_(to_string(server)) {
  Hello hello;
  hello.rank = kObserverRank;
  hello.settings_digest = settings_digest({});
  std::string reason;
  std::optional<StoreSession> session =
      open_session(server, secret, std::move(hello), deadline, OtherServers::kNone, reason);
  if (!session) throw PeerError("no job to follow at " + server_ + ": " + reason);
  connection_.socket = std::move(session->socket);
  parser_ = std::move(session->parser);
  seals_ = std::move(session->seals);
}

void StatusFeed::take_frames(std::optional<std::string>& newest) {
  try {
    while (std::optional<Frame> frame = parser_.next(kFrameBytes + kSealBytes)) {
      seals_.to_client.open(*frame);
      FrameReader in(frame->payload);
      if (frame->type == FrameType::kStatus) newest = in.text();
      if (frame->type == FrameType::kProgress) missing_ = read_ranks(in);
      if (frame->type == FrameType::kLeft) ended_ = true;
      if (frame->type == FrameType::kRefuse || frame->type == FrameType::kFatal) {
        in.u8();
        lost_ = "rank 0 at " + server_ + " closed the connection: " + base::escape_text(in.text());
      }
    }
  } catch (const MalformedFrame&) {
    throw PeerError("what came from " + server_ + " is damaged or forged");
  }
}

std::optional<std::string> StatusFeed::next(Deadline deadline) {
  std::optional<std::string> newest;
  take_frames(newest);  // frames that came after the welcome
  while (!ended_ && lost_.empty()) {
    pollfd p{connection_.socket.fd(), POLLIN, 0};
    const bool ready = poll(&p, 1, newest ? 0 : milliseconds_left(deadline)) > 0;
    if (!ready && (newest || base::has_passed(deadline))) break;
    std::string bytes;
    const bool closed = !connection_.receive(bytes).empty();
    parser_.append(bytes.data(), bytes.size());
    take_frames(newest);
    if (closed && !ended_ && lost_.empty())
      lost_ = "the connection to rank 0 at " + server_ + " was lost; the job may still be running";
  }
  if (!newest && !lost_.empty()) throw PeerError(lost_);
  return newest;
}

}  // namespace backends
