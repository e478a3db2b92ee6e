// Distinguishes a stopped process from a cut network: its host accepts two connections, half a
// heartbeat apart, and nothing answers for a heartbeat.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "io/base/time/deadline.h"

namespace backends {

// How long a connection that is broken or silent is waited for. Silence means nothing before the
// third heartbeat is missed, however long heartbeats are.
inline base::Deadline::duration patience_with(std::chrono::milliseconds patience,
                                              std::chrono::milliseconds heartbeat, bool is_broken) {
  return is_broken ? patience : std::max(patience, 3 * heartbeat);
}

// The option, or else the rule, that set this patience.
inline const char* patience_name(std::chrono::milliseconds patience,
                                 std::chrono::milliseconds heartbeat, bool is_broken) {
  return patience_with(patience, heartbeat, is_broken) > patience ? "three heartbeats"
                                                                  : "--link-patience";
}

class StopCheck {
 public:
  using Time = base::Deadline;

  explicit StopCheck(std::chrono::milliseconds heartbeat) : heartbeat_(heartbeat) {}

  void on_accepted(Time now) {
    if (!first_) {
      first_ = now;
    } else {
      has_second_ = has_second_ || asked_;
    }
  }
  void reset() { *this = StopCheck(heartbeat_); }

  bool is_waiting() const { return first_.has_value(); }
  // Returns true once: the second connection is due.
  [[nodiscard]] bool ask_for_second(Time now) {
    if (!first_ || asked_ || now - *first_ < heartbeat_ / 2) return false;
    asked_ = true;
    return true;
  }
  bool is_stopped(Time now) const { return has_second_ && now - *first_ >= heartbeat_; }
  // The host has accepted only the first one: the network may be cut.
  bool is_inconclusive(Time now) const {
    return first_ && !has_second_ && now - *first_ >= heartbeat_;
  }

 private:
  std::chrono::milliseconds heartbeat_;
  std::optional<Time> first_;
  bool asked_ = false, has_second_ = false;
};

}  // namespace backends
