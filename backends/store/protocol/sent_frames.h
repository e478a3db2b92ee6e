// Keeps the frames that one side of a store connection has sent until the other side has
// acknowledged them, so that a new connection can continue where a broken one ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "backends/store/protocol/wire.h"

namespace backends {

// The maximum of kept bytes; beyond it a broken connection cannot be continued.
inline constexpr std::size_t kMaxUnacknowledgedBytes = 4 * kFrameBytes;

// A broken connection is reported if there is no new one by then, and the process has not ended.
inline constexpr auto kDoubtReportTime = std::chrono::milliseconds(200);

class SentFrames {
 public:
  using Shared = std::shared_ptr<const std::string>;  // one copy of what all members receive

  SentFrames() = default;
  explicit SentFrames(bool keeps) : keeps_(keeps) {}

  void add(Shared frame);
  // The other side has received the first `received` frames. Throws MalformedFrame if they are more
  // than were sent. An older number, of a frame that was sent again, has no effect.
  void acknowledge(std::uint64_t received);

  // Returns true if all frames after the first `received` are kept.
  bool has_after(std::uint64_t received) const {
    return keeps_ && received >= acknowledged_ && received <= count_;
  }
  bool keeps() const { return keeps_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  const std::deque<Shared>& kept() const { return kept_; }

 private:
  bool keeps_ = false;
  std::deque<Shared> kept_;  // the last ones; empty if keeps_ is false
  std::size_t bytes_ = 0;
  std::uint64_t count_ = 0, acknowledged_ = 0;
};

}  // namespace backends
