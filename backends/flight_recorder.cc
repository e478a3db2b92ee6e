// The ring of the last collectives, and its JSON form.
#include "backends/flight_recorder.h"

#include <algorithm>
#include <chrono>

#include "io/base/json_writer.h"

namespace backends {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void add_details(base::JsonWriter& json, const ControlWord& w) {
  switch (w.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      json.member("type", type_name(w));
      json.member("op", to_string(static_cast<ReduceOp>(w.type_and_op % 16)));
      return;
    case Operation::kBroadcast:
      json.member("type", "u8").member("root", w.root);
      return;
    case Operation::kAllGather:
    case Operation::kBarrier:
    case Operation::kRegister:
      break;
  }
  json.member("type", "u8");
}

}  // namespace

FlightRecorder::FlightRecorder() : entries_(kCapacity) {}

FlightRecorder::Ticket FlightRecorder::begin(int communicator, const ControlWord& call) noexcept {
  const std::int64_t now = now_us();
  const std::lock_guard lock(mutex_);
  entries_[next_ % kCapacity] = {call, communicator, now, 0, false};
  return next_++;
}

void FlightRecorder::end(Ticket ticket, bool failed) noexcept {
  const std::int64_t now = now_us();
  const std::lock_guard lock(mutex_);
  if (next_ - ticket > kCapacity) return;  // overwritten by the calls of other communicators
  Entry& e = entries_[ticket % kCapacity];
  e.end_us = now;
  e.failed = failed;
}

std::optional<FlightRecorder::Running> FlightRecorder::running() const noexcept {
  const std::lock_guard lock(mutex_);
  for (Ticket t = next_ - std::min<Ticket>(next_, kCapacity); t < next_; ++t) {
    const Entry& e = entries_[t % kCapacity];
    if (e.end_us == 0) return Running{e.communicator, e.call, e.begin_us};
  }
  return std::nullopt;
}

std::string FlightRecorder::to_json(const Header& h) const {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("rank", h.rank);
  json.member("world_size", h.world_size).member("host", h.host).member("pid", h.pid);
  json.member("backend", h.backend).member("reason", h.reason).member("activity", h.activity);
  if (!h.membership.empty()) json.member("membership", h.membership);
  json.member("written_us", now_us()).key("collectives").begin_array();
  const std::lock_guard lock(mutex_);
  for (Ticket t = next_ - std::min<Ticket>(next_, kCapacity); t < next_; ++t) {
    const Entry& e = entries_[t % kCapacity];
    const bool running = e.end_us == 0;
    json.new_line().begin_object().member("communicator", e.communicator);
    json.member("sequence", e.call.sequence).member("operation", to_string(e.call.operation));
    json.member("count", e.call.count);
    add_details(json, e.call);
    json.member("begin_us", e.begin_us);
    json.member("end_us", running ? std::nullopt : std::optional(e.end_us));
    json.member("state", running ? "running" : e.failed ? "failed" : "done").end_object();
  }
  return json.new_line().end_array().end_object().text() + "\n";
}

}  // namespace backends
