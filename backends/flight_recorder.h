// Keeps the last collectives of a rank in memory, to be written out on a failure: they show what
// the rank was waiting for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/control_word.h"

namespace backends {

// Thread-safe; allocates only when made. One for all communicators of a group. begin() and end()
// lie in the path of every call, so they take no lock and read the processor's counter of cycles
// instead of the clock, where that counter runs evenly; it becomes the time of day when the record
// is read.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 4096;

  // `time_of_day`: microseconds since the epoch. It may be set while the recorder is in use: times
  // are what it says when they are read, less what has passed since then.
  explicit FlightRecorder(std::int64_t (*time_of_day)() = &system_time_us);
  static std::int64_t system_time_us();

  using Ticket = std::uint64_t;
  // `communicator`: its index in the order in which the group made them.
  Ticket begin(int communicator, const ControlWord& call) noexcept;
  void end(Ticket ticket, bool failed) noexcept;

  struct Running {
    int communicator;
    ControlWord call;
    std::int64_t waited_us;  // since it began
  };
  // The call that has been running longest.
  std::optional<Running> running() const noexcept;

  struct Header {
    int rank = 0, world_size = 1, pid = 0;
    std::string host, backend, reason, activity;
    std::vector<std::string> membership = {};  // how the ranks of an elastic job changed; in words
  };
  // {"schema":1,"rank":0,...,"collectives":[...]}, oldest first, times since the epoch; a
  // collective is
  // {"communicator":0,"sequence":1,"operation":"all_reduce","count":7,"type":"f32","op":"sum",
  // "begin_us":5,"end_us":9|null,"state":"done|running|failed"}.
  std::string to_json(const Header& header) const;

 private:
  // One cache line of the ring: ticket t is at t % kCapacity. Its writer is whoever made `stamp`
  // odd; readers take an entry whose stamp was the same before and after they read the rest.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> stamp{0};               // 2 t + 1 while begin() writes, then 2 t + 2
    std::atomic<std::uint64_t> outcome{0};             // how the call ended (flight_recorder.cc)
    std::atomic<std::uint64_t> begin{0};               // ticks
    std::array<std::atomic<std::uint64_t>, 2> call{};  // a ControlWord
    std::atomic<int> communicator{0};
  };
  static_assert(sizeof(Entry) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);
  struct Call {
    Running what;
    std::int64_t begin_us;
    std::optional<std::int64_t> end_us;
    bool failed = false;
  };
  class Times;
  // Nothing: it is just being written or belongs to a later call.
  std::optional<Call> read(Ticket ticket, const Times& times) const noexcept;
  // The first of the tickets whose entries may still be there, and the one after the last.
  std::pair<Ticket, Ticket> kept() const noexcept;

  std::vector<Entry> entries_;
  std::atomic<Ticket> next_{0};
  std::int64_t (*const time_of_day_)();
  const std::int64_t start_us_;  // by a clock that nobody sets
  const std::uint64_t start_ticks_;
};

}  // namespace backends
