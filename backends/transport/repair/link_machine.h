// Decides about the connections of one link between two ranks: which of them counts, what a break
// means, when to try again and when to give up. A state machine without clock, socket or thread.
//
// One end of a link connects, the other one accepts.
//
//   kNew --established--> kUp --break--> kBroken --established--> kUp
//                                           |
//                                           +--patience, refusal, secret, failure--> kGivenUp
//
// Any state but kGivenUp becomes kEnded with the group.
#pragma once

#include <cstdint>

#include "backends/transport/repair/connect_schedule.h"
#include "backends/transport/repair/connection_numbers.h"
#include "io/base/time/deadline.h"

namespace backends {

class LinkMachine {
 public:
  using Time = base::Deadline;
  enum class State { kNew, kUp, kBroken, kGivenUp, kEnded };
  struct Rules {
    Time::duration patience{};      // from a break until the link is given up
    Time::duration report_delay{};  // from a break until it is reported
    ConnectionNumbers::Of numbers = ConnectionNumbers::Of::kConnections;
    bool has_relay = false;
    ConnectSchedule::Paces set_up, repair;
  };

  LinkMachine() = default;
  // `relay_first`: the relay is used at once.
  LinkMachine(const Rules& rules, Time now, bool relay_first = false);

  State state() const { return state_; }
  bool needs_connection() const { return state_ == State::kNew || is_broken(); }
  bool is_relayed() const { return relayed_; }  // the newest connection
  ConnectSchedule& schedule() { return schedule_; }
  ConnectionNumbers& numbers() { return numbers_; }

  // The connection has broken. Returns true if that begins a repair.
  bool on_break(Time now, bool relay_first = false);
  // Returns true, once, if the patience has passed: the link is given up.
  [[nodiscard]] bool on_time(Time now);
  // Returns true, once for each break: it is to be reported now. `in_any_case`: before the report
  // that it is over, or why it is not.
  [[nodiscard]] bool take_report(Time now, bool in_any_case = false);
  // As of ConnectSchedule; false if no connection is needed.
  [[nodiscard]] bool begin(ConnectWay way, Time now);
  // A direct try was refused. Returns true if the peer's process has ended, so the link is given
  // up: not in set-up, when it may be about to listen, and not for a connection through the relay,
  // of whose other end a refusal says nothing.
  [[nodiscard]] bool on_refused();
  // The process that was reached does not know the secret. Returns true if no other process is to
  // be expected there, which is an error and ends a repair. If there is a relay, the direct way
  // just ends: another host of the own network may have the peer's address.
  [[nodiscard]] bool on_wrong_secret(ConnectWay way);
  // The handshake is over. Returns the time since the break, 0 in set-up.
  Time::duration on_established(Time now, bool relayed = false);
  // For the accepting end: returns true if a connection of this number may replace the present one.
  bool may_take(std::uint32_t number) const;
  // For the accepting end: the peer has proved that the connection is its own. Returns false if it
  // may not be taken; else its number is the newest one, and the earlier connection has broken.
  [[nodiscard]] bool on_proof(std::uint32_t number, Time now, bool relay_first = false);
  // Another reason for kGivenUp, or the group ends: kEnded. The first of the two stays.
  void end(State state);

 private:
  void start(Time now, ConnectSchedule::Paces paces, bool relay_first);

  bool is_broken() const { return state_ == State::kBroken; }
  bool is_over() const { return state_ == State::kGivenUp || state_ == State::kEnded; }

  Rules rules_;
  State state_ = State::kNew;
  ConnectSchedule schedule_;
  ConnectionNumbers numbers_;
  bool relayed_ = false, reported_ = false;
  Time broken_{};
};

}  // namespace backends
