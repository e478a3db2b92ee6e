// The thread of a rank that sends heartbeats, receives from rank 0 and learns of failures.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/store/store_client.h"
#include "io/base/visible_text.h"

namespace backends {

void TcpStore::watch() {
  // Polls more often than the heartbeat interval, so that a changed activity is sent soon, before
  // this process may die.
  const auto heartbeat_interval = std::chrono::milliseconds(options_.heartbeat_ms);
  const auto poll_interval = std::min(heartbeat_interval, std::chrono::milliseconds(200));
  auto last_turn = Clock::now();
  try {
    handle_received();  // behind the welcome
    for (;;) {
      send_heartbeat();
      pollfd polled[2] = {{socket_.fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
      poll(polled, 2, static_cast<int>(poll_interval.count()));
      if (polled[1].revents != 0) return;
      if (polled[0].revents != 0 && !receive()) return;
      const auto now = Clock::now();
      // If this process itself was paused, silence of rank 0 proves nothing.
      if (now - last_turn > heartbeat_interval + poll_interval) last_received_ = now;
      last_turn = now;
      if (now - last_received_ > 3 * heartbeat_interval) {
        // Rank 0 may be frozen only: it reads this when it wakes up, and does not wait for those
        // who have left.
        (void)send(FrameWriter(FrameType::kRootSilent).finish());
        return connection_ended("does not answer: no heartbeat for " +
                                std::to_string(3 * options_.heartbeat_ms) + " ms");
      }
    }
  } catch (const MalformedFrame&) {
    shutdown(socket_.fd(), SHUT_RDWR);  // no orderly leave: rank 0 must learn of it
    connection_ended("cannot be trusted: its connection carried a frame that is damaged or forged");
  }
}

bool TcpStore::receive() {
  char buffer[65536];
  const ssize_t n = recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (n <= 0) {
    connection_ended(n == 0 ? "died: its connection closed"
                            : std::string("died: its connection broke (") + std::strerror(errno) +
                                  ")");
    return false;
  }
  last_received_ = Clock::now();
  parser_.append(buffer, static_cast<std::size_t>(n));
  handle_received();
  return true;
}

void TcpStore::handle_received() {
  while (std::optional<Frame> frame = parser_.next(kFrameBytes + kSealBytes)) {
    incoming_.open(*frame);
    handle(*frame);
  }
}

void TcpStore::send_heartbeat() {
  const auto now = Clock::now();
  std::string activity;
  {
    const std::lock_guard lock(mutex_);
    activity = activity_;
  }
  if (now < next_heartbeat_ && activity == last_activity_sent_) return;
  next_heartbeat_ = now + std::chrono::milliseconds(options_.heartbeat_ms);
  RankProgress progress;
  {
    const std::lock_guard lock(progress_mutex_);
    if (progress_source_) progress = progress_source_();
  }
  (void)send(FrameWriter(FrameType::kHeartbeat)
                 .text(activity)
                 .u32(static_cast<std::uint32_t>(progress.waiting_ms))
                 .text(progress.call)
                 .text(progress.links)
                 .finish());  // receive() notices a broken connection
  last_activity_sent_ = std::move(activity);
}

void TcpStore::handle(const Frame& frame) {
  FrameReader in(frame.payload);
  if (frame.type == FrameType::kFailure) {
    in.i32();
    return fail(base::visible_text(in.text()));
  }
  if (frame.type == FrameType::kStart) return handle_start(in);
  if (frame.type == FrameType::kNotice) {
    if (options_.notice) options_.notice(base::visible_text(in.text()));
    return;
  }
  const std::lock_guard lock(mutex_);
  switch (frame.type) {
    case FrameType::kReply: {
      const auto found = replies_.find(in.u32());
      if (found != replies_.end()) found->second = in.text();
      break;
    }
    case FrameType::kProgress:
      absent_.missing = read_ranks(in);
      absent_.left = read_ranks(in);
      break;
    case FrameType::kFatal: {
      const auto kind = static_cast<RefusalKind>(in.u8());
      fatal_.emplace(kind, in.text());
      break;
    }
    case FrameType::kHeartbeat:
      root_activity_ = base::visible_text(in.text());
      break;
    case FrameType::kLeft:
      left_ = true;
      break;
    default:
      throw MalformedFrame();
  }
  changed_.notify_all();
}

// Acknowledges before it takes effect: until rank 0 has the acknowledgement, this process may
// reconnect, and afterwards it may not.
void TcpStore::handle_start(FrameReader& in) {
  std::string nonce = in.bytes(kNonceBytes);
  const std::uint32_t count = in.u32();
  if (count > kFrameBytes / 12) throw MalformedFrame();
  std::vector<PeerInfo> peers(count);
  int rank = 0;
  for (PeerInfo& peer : peers) {
    peer.rank = rank++;
    peer.host = base::visible_text(in.text());
    peer.host_id = in.text();
    peer.pid = in.i32();
  }
  if (!send(FrameWriter(FrameType::kStartAcknowledged).finish())) return;
  const std::lock_guard lock(mutex_);
  one_host_ = std::ranges::all_of(
      peers, [&](const PeerInfo& peer) { return peer.host_id == peers.front().host_id; });
  peers_ = std::move(peers);
  group_nonce_ = std::move(nonce);
  started_ = true;
  absent_ = {};
  changed_.notify_all();
}

void TcpStore::fail(const std::string& text) {
  std::function<void(const std::string&)> callback;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = text;
    callback.swap(callback_);
    changed_.notify_all();
  }
  if (callback) callback(text);
}

void TcpStore::connection_ended(const std::string& cause) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    lost_ = cause;
    changed_.notify_all();
    if (!started_ || left_ || leaving_ || stopping_ || failure_ || peers_.empty()) return;
    text = member_text(0, peers_[0].host, peers_[0].pid) + " " + cause +
           "; last activity: " + (root_activity_.empty() ? "unknown" : root_activity_);
  }
  fail(text);
}

}  // namespace backends
