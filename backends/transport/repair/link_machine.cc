// Implements the states of a link.
#include "backends/transport/repair/link_machine.h"

#include <utility>

namespace backends {

LinkMachine::LinkMachine(const Rules& rules, Time now, bool relay_first)
    : rules_(rules), numbers_(rules.numbers) {
  start(now, rules_.set_up, relay_first);
}

void LinkMachine::start(Time now, ConnectSchedule::Paces paces, bool relay_first) {
  if (relay_first) paces.relay.delay = {};
  schedule_.start(now, paces);
}

bool LinkMachine::on_break(Time now, bool relay_first) {
  if (state_ != State::kUp) return false;
  state_ = State::kBroken;
  broken_ = now;
  reported_ = false;
  start(now, rules_.repair, relay_first);
  return true;
}

bool LinkMachine::on_time(Time now) {
  if (!is_broken() || now < broken_ + rules_.patience) return false;
  end(State::kGivenUp);
  return true;
}

bool LinkMachine::take_report(Time now, bool in_any_case) {
  if (!is_broken() || reported_) return false;
  reported_ = in_any_case || now >= broken_ + rules_.report_delay;
  return reported_;
}

bool LinkMachine::begin(ConnectWay way, Time now) {
  return needs_connection() && schedule_.begin(way, now);
}

bool LinkMachine::on_refused() {
  if (!is_broken() || relayed_) return false;
  end(State::kGivenUp);
  return true;
}

bool LinkMachine::on_wrong_secret(ConnectWay way) {
  if (!needs_connection() || !schedule_.count_wrong_secret(way)) return false;
  if (rules_.has_relay && way != ConnectWay::kRelay) {
    schedule_.stop(way);
    return false;
  }
  if (is_broken()) end(State::kGivenUp);
  return true;
}

LinkMachine::Time::duration LinkMachine::on_established(Time now, bool relayed) {
  if (is_over()) return {};
  relayed_ = relayed;
  return std::exchange(state_, State::kUp) == State::kBroken ? now - broken_ : Time::duration{};
}

bool LinkMachine::may_take(std::uint32_t number) const {
  return !is_over() && numbers_.may_replace(number, is_broken());
}

bool LinkMachine::on_proof(std::uint32_t number, Time now, bool relay_first) {
  if (!may_take(number)) return false;
  numbers_.adopt(number);
  (void)on_break(now, relay_first);
  return true;
}

void LinkMachine::end(State state) {
  if (!is_over()) state_ = state;
}

}  // namespace backends
