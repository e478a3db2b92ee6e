// A member's stream of frames to and from the store, over one connection after the other: what is
// not acknowledged is sent again, and rank 0's end is distinguished from a cut. It has no clock or
// socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/store/protocol/seal.h"
#include "backends/store/protocol/sent_frames.h"
#include "backends/store/protocol/stop_check.h"
#include "backends/store/protocol/wire.h"
#include "io/base/time/deadline.h"

namespace backends {

// At least as often a MemberMachine is to be given the time.
std::chrono::milliseconds member_tick_interval(int heartbeat_ms);

struct LinkPatience {
  std::chrono::milliseconds time{0};  // in which a broken connection is restored; 0: never
  int port = 0;                       // of this process for probes; 0: it answers none
};

class MemberLink {
 public:
  using Time = base::Deadline;

  void closed(const std::string& cause);  // "its connection closed"
  // Notices the silence of rank 0. A long time since the last tick means that this process itself
  // was paused: silence then proves nothing. At least every member_tick_interval().
  void tick(Time now);

  std::string take_output() { return std::exchange(output_, {}); }
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  // The connection has broken, or is silent: connect to rank 0 again.
  bool wants_connection() const { return doubt_ && !is_over_; }
  bool is_broken() const { return doubt_ && !doubt_->broken.empty(); }
  std::uint64_t received_frames() const { return received_; }

  // Results of attempts to continue the session. A refused one means that rank 0's process has
  // ended. An accepted one has a heartbeat to answer.
  void attempt_refused();
  void attempt_accepted(Time now) { check_.on_accepted(now); }
  // Returns true if an accepted attempt without an answer is to be replaced, once.
  [[nodiscard]] bool wants_second_attempt(Time now) { return check_.ask_for_second(now); }
  void attempt_answered() { check_.reset(); }
  void attempt_failed() { check_.reset(); }
  void attempt_rejected(const std::string& text);
  // `peer_received`: frames that rank 0 has received on all connections of the session.
  void continued(FrameParser parser, Seals seals, std::uint64_t peer_received, Time now);

 protected:
  MemberLink(FrameParser parser, Seals seals, int heartbeat_ms, Time now, LinkPatience patience);
  virtual ~MemberLink() = default;

  virtual bool is_in_session() const = 0;  // rank 0 continues it if the connection breaks
  virtual void on_end(const std::string& cause) = 0;

  void send(const std::string& frame);
  // Calls handle(frame) for each frame that has come.
  template <class Handle>
  void receive(std::string_view bytes, Time now, Handle handle);
  void end_link(const std::string& cause);

  bool is_over() const { return is_over_; }
  bool has_output() const { return !output_.empty(); }
  int heartbeat_ms() const { return heartbeat_ms_; }
  SentFrames& sent_frames() { return sent_; }
  const SentFrames& sent_frames() const { return sent_; }
  void add_notice(std::string text) { notices_.push_back(std::move(text)); }
  int port() const { return patience_.port; }

 private:
  struct Doubt {
    Time since{};
    std::string broken = {};  // why the connection has ended; "": it is silent
    bool reported = false;
  };

  bool may_continue() const { return sent_.keeps() && is_in_session(); }
  void examine(Time now);
  void root_is_silent();
  void report_doubt(const std::string& cause);
  void connected_again(Time now);

  const int heartbeat_ms_;
  const LinkPatience patience_;
  FrameParser parser_;
  Seals seals_;
  std::string output_;
  SentFrames sent_;
  std::uint64_t received_ = 0;  // frames
  Time last_received_, last_tick_;
  std::optional<Doubt> doubt_;
  StopCheck check_;
  bool is_over_ = false;
  std::vector<std::string> notices_;
};

template <class Handle>
void MemberLink::receive(std::string_view bytes, Time now, Handle handle) {
  if (is_over_ || is_broken()) return;
  last_received_ = now;
  parser_.append(bytes.data(), bytes.size());
  try {
    while (std::optional<Frame> frame = parser_.next(kFrameBytes + kSealBytes)) {
      seals_.to_client.open(*frame);
      handle(*frame);
      ++received_;
    }
  } catch (const MalformedFrame&) {
    end_link("cannot be trusted: its connection carried a frame that is damaged or forged");
  }
  if (wants_connection() && !bytes.empty()) connected_again(now);
}

}  // namespace backends
