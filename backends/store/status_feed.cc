// StatusFeed.
#include "backends/store/status_feed.h"

#include <poll.h>

#include "backends/backend_error.h"

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
      if (frame->type == FrameType::kStatus) newest = FrameReader(frame->payload).text();
    }
  } catch (const MalformedFrame&) {
    throw PeerError("what came from " + server_ + " is damaged or forged");
  }
}

std::optional<std::string> StatusFeed::next(Deadline deadline) {
  std::optional<std::string> newest;
  take_frames(newest);  // what came behind the welcome
  while (!ended_) {
    pollfd p{connection_.socket.fd(), POLLIN, 0};
    const bool ready = poll(&p, 1, newest ? 0 : milliseconds_left(deadline)) > 0;
    if (!ready && newest) break;
    if (!ready && base::has_passed(deadline))
      throw PeerError("rank 0 at " + server_ + " has said nothing about its job in time");
    std::string bytes;
    ended_ = !connection_.receive(bytes).empty();
    parser_.append(bytes.data(), bytes.size());
    take_frames(newest);
  }
  return newest;
}

}  // namespace backends
