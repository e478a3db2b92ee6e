// The ring of the last collectives, and its JSON form.
#include "backends/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace backends {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string details(const ControlWord& w) {
  switch (w.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return ",\"type\":" + quoted(std::string(type_name(w))) +
             ",\"op\":" + quoted(std::string(to_string(static_cast<ReduceOp>(w.type_and_op % 16))));
    case Operation::kBroadcast:
      return ",\"type\":\"u8\",\"root\":" + std::to_string(w.root);
    case Operation::kAllGather:
    case Operation::kBarrier:
    case Operation::kRegister:
      break;
  }
  return ",\"type\":\"u8\"";
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

std::string FlightRecorder::to_json(const Header& h) const {
  std::string out = "{\"schema\":1,\"rank\":" + std::to_string(h.rank) +
                    ",\"world_size\":" + std::to_string(h.world_size) +
                    ",\"host\":" + quoted(h.host) + ",\"pid\":" + std::to_string(h.pid) +
                    ",\"backend\":" + quoted(h.backend) + ",\"reason\":" + quoted(h.reason) +
                    ",\"activity\":" + quoted(h.activity) +
                    ",\"written_us\":" + std::to_string(now_us()) + ",\"collectives\":[";
  const std::lock_guard lock(mutex_);
  for (Ticket t = next_ - std::min<Ticket>(next_, kCapacity); t < next_; ++t) {
    const Entry& e = entries_[t % kCapacity];
    if (out.back() == '}') out += ',';
    out += "\n{\"communicator\":" + std::to_string(e.communicator) +
           ",\"sequence\":" + std::to_string(e.call.sequence) +
           ",\"operation\":" + quoted(std::string(to_string(e.call.operation))) +
           ",\"count\":" + std::to_string(e.call.count) + details(e.call) +
           ",\"begin_us\":" + std::to_string(e.begin_us) +
           ",\"end_us\":" + (e.end_us == 0 ? "null" : std::to_string(e.end_us)) + ",\"state\":" +
           (e.end_us == 0 ? "\"running\""
            : e.failed    ? "\"failed\""
                          : "\"done\"") +
           "}";
  }
  return out + "\n]}\n";
}

}  // namespace backends
