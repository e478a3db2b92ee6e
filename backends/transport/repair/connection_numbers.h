// Numbers the connections of one link, so that its accepting end distinguishes the newest one from
// what is left of earlier ones.
#pragma once

#include <cstdint>

namespace backends {

class ConnectionNumbers {
 public:
  // The unit that gets a number: one connection, however many attempts it takes (the connecting end
  // chooses among them, with a last message), or each attempt (the accepting end uses the first
  // greeting of a newer one).
  enum class Of { kConnections, kAttempts };

  ConnectionNumbers() = default;
  explicit ConnectionNumbers(Of of) : of_(of) {}

  // For the connecting end: returns the number to state in a new attempt.
  std::uint32_t offer() { return of_ == Of::kAttempts ? ++number_ : number_; }
  // For the connecting end: the last message was sent, once for each number.
  void on_chosen() {
    if (of_ == Of::kConnections) ++number_;
  }
  // For both: a connection or attempt of this number is the newest one.
  bool is_current(std::uint32_t number) const { return number == number_; }
  // For the accepting end: returns true if a connection of this number may replace the newest one,
  // which is broken or not. All attempts to make one connection have the same number, and the peer
  // ends the handshake on one of them.
  bool may_replace(std::uint32_t number, bool is_broken) const {
    return number > number_ || (of_ == Of::kConnections && number == number_ && is_broken);
  }
  // For the accepting end: this number is the newest one.
  void adopt(std::uint32_t number) { number_ = number; }

 private:
  Of of_ = Of::kConnections;
  // The connecting end: of the next connection, or the newest attempt. The accepting end: of the
  // newest connection or attempt that was proved.
  std::uint32_t number_ = 0;
};

}  // namespace backends
