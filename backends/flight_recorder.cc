// Implements the ring of the last collectives, and its JSON form.
#include "backends/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "io/base/formats/json_writer.h"

namespace backends {
namespace {

std::int64_t steady_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool cycles_are_even() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;  // AMD and Intel manuals: "invariant TSC"
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & 1u << 8u) != 0;
#else
  return false;
#endif
}
const bool kCyclesAreEven = cycles_are_even();

// Returns cycles of a constant rate, or nanoseconds.
std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  if (kCyclesAreEven) return __rdtsc();
#endif
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// An outcome is one word, so that end() can write it in one step, and only if its call is still in
// the ring: bit 0 ended, bit 1 failed, then 16 bits of the ring's lap and 46 of the duration in
// units of 64 ticks (16 days and more, at 3 GHz).
constexpr std::uint64_t kEnded = 1, kFailed = 2, kMaxUnits = (std::uint64_t{1} << 46u) - 1;
constexpr std::uint64_t not_ended(std::uint64_t ticket) {
  return (ticket / FlightRecorder::kCapacity % (1u << 16u)) << 2u;
}
constexpr std::uint64_t units_of(std::uint64_t outcome) { return outcome >> 18u; }

constexpr int kMaxLeftOut = 64;  // tickets, in one begin(): limits its time

void add_details(base::JsonWriter& json, const ControlWord& w) {
  switch (w.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      json.member("type", type_name(w));
      json.member("op", to_string(w.op()));
      return;
    case Operation::kBroadcast:
      json.member("type", "u8").member("root", w.root);
      return;
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kBarrier:
    case Operation::kRegister:
      break;
  }
  json.member("type", "u8");
}

}  // namespace

// Converts ticks to times, based on a steady clock's count since the start.
class FlightRecorder::Times {
 public:
  explicit Times(const FlightRecorder& of)
      : time_of_day_(of.time_of_day_()),
        start_ticks_(of.start_ticks_),
        us_(steady_us() - of.start_us_),
        ticks_(ticks() - start_ticks_) {}

  // Returns the age of `at` in microseconds.
  std::int64_t age_us(std::uint64_t at) const {
    if (at <= start_ticks_ || ticks_ == 0) return us_;  // counters of cores differ a little
    const double part =
        std::min(1.0, static_cast<double>(at - start_ticks_) / static_cast<double>(ticks_));
    return us_ - static_cast<std::int64_t>(part * static_cast<double>(us_));
  }
  // Returns the time in microseconds since the epoch.
  std::int64_t us(std::uint64_t at) const { return time_of_day_ - age_us(at); }

 private:
  const std::int64_t time_of_day_;
  const std::uint64_t start_ticks_;
  const std::int64_t us_;
  const std::uint64_t ticks_;
};

FlightRecorder::FlightRecorder(std::int64_t (*time_of_day)())
    : entries_(kCapacity),
      time_of_day_(time_of_day),
      start_us_(steady_us()),
      start_ticks_(ticks()) {}

FlightRecorder::Ticket FlightRecorder::begin(int communicator, const ControlWord& call) noexcept {
  const std::uint64_t now = ticks();
  // A communicator has one call at a time: one of its own that has not ended was given up.
  const auto is_in_use = [communicator](const Entry& e) {
    return e.stamp.load(std::memory_order_relaxed) != 0 &&
           (e.outcome.load(std::memory_order_relaxed) & kEnded) == 0 &&
           e.communicator.load(std::memory_order_relaxed) != communicator;
  };
  Ticket ticket = next_.fetch_add(1, std::memory_order_relaxed);
  for (int left_out = 0; left_out < kMaxLeftOut && is_in_use(entries_[ticket % kCapacity]);
       ++left_out)
    ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Entry& e = entries_[ticket % kCapacity];
  std::uint64_t before = e.stamp.load(std::memory_order_relaxed);
  // The entry belongs to a thread that was paused within begin() for a whole lap, or to one that is
  // a lap ahead.
  if (before % 2 != 0 || before > 2 * ticket ||
      !e.stamp.compare_exchange_strong(before, 2 * ticket + 1, std::memory_order_acq_rel))
    return ticket;
  // A reader that sees one of these values also sees the odd stamp.
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(call);
  e.outcome.store(not_ended(ticket), std::memory_order_release);
  e.begin.store(now, std::memory_order_release);
  e.call[0].store(words[0], std::memory_order_release);
  e.call[1].store(words[1], std::memory_order_release);
  e.communicator.store(communicator, std::memory_order_release);
  e.stamp.store(2 * ticket + 2, std::memory_order_release);
  return ticket;
}

void FlightRecorder::end(Ticket ticket, bool failed) noexcept {
  Entry& e = entries_[ticket % kCapacity];
  // Otherwise the calls of other communicators have overwritten it; that may also happen from here
  // on.
  if (e.stamp.load(std::memory_order_relaxed) != 2 * ticket + 2) return;
  const std::uint64_t begun = e.begin.load(std::memory_order_relaxed), now = ticks();
  const std::uint64_t units = std::min((now - std::min(now, begun)) / 64, kMaxUnits);
  std::uint64_t running = not_ended(ticket);
  e.outcome.compare_exchange_strong(running,
                                    units << 18u | running | (failed ? kFailed : 0) | kEnded,
                                    std::memory_order_release, std::memory_order_relaxed);
  // Older entries have been evicted from the first-level cache.
  __builtin_prefetch(&entries_[(ticket + 1) % kCapacity], 1);
}

std::optional<FlightRecorder::Call> FlightRecorder::read(const Entry& e,
                                                         const Times& times) noexcept {
  const std::uint64_t stamp = e.stamp.load(std::memory_order_acquire);
  if (stamp == 0 || stamp % 2 != 0) return std::nullopt;
  const std::uint64_t outcome = e.outcome.load(std::memory_order_acquire),
                      begin = e.begin.load(std::memory_order_acquire);
  const std::array words{e.call[0].load(std::memory_order_acquire),
                         e.call[1].load(std::memory_order_acquire)};
  const int communicator = e.communicator.load(std::memory_order_acquire);
  if (e.stamp.load(std::memory_order_relaxed) != stamp) return std::nullopt;
  Call call{stamp / 2 - 1,
            {communicator, std::bit_cast<ControlWord>(words), times.age_us(begin)},
            times.us(begin),
            {}};
  if ((outcome & kEnded) != 0) call.end_us = times.us(begin + units_of(outcome) * 64);
  call.failed = (outcome & kFailed) != 0;
  return call;
}

std::optional<FlightRecorder::Running> FlightRecorder::running() const noexcept {
  const Times times(*this);
  std::optional<Running> longest;
  for (const Entry& entry : entries_) {
    const std::optional<Call> call = read(entry, times);
    if (call && !call->end_us && (!longest || call->what.waited_us > longest->waited_us))
      longest = call->what;
  }
  return longest;
}

std::string FlightRecorder::to_json(const Header& h) const {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("rank", h.rank);
  json.member("world_size", h.world_size).member("host", h.host).member("pid", h.pid);
  json.member("backend", h.backend).member("reason", h.reason).member("activity", h.activity);
  if (!h.membership.empty()) json.member("membership", h.membership);
  json.member("written_us", time_of_day_()).key("collectives").begin_array();
  const Times times(*this);
  std::vector<Call> calls;
  for (const Entry& entry : entries_) {
    if (const std::optional<Call> call = read(entry, times)) calls.push_back(*call);
  }
  std::ranges::sort(calls, {}, &Call::ticket);
  for (const Call& call : calls) {
    const ControlWord& word = call.what.call;
    json.new_line().begin_object().member("communicator", call.what.communicator);
    json.member("sequence", word.sequence).member("operation", to_string(word.operation));
    json.member("count", word.count);
    add_details(json, word);
    json.member("begin_us", call.begin_us);
    json.member("end_us", call.end_us);
    json.member("state", !call.end_us ? "running" : call.failed ? "failed" : "done").end_object();
  }
  return json.new_line().end_array().end_object().text() + "\n";
}

}  // namespace backends
