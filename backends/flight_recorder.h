// Keeps the last collectives of a rank in memory, to be written on a failure: they show what the
// rank was waiting for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/control_word.h"
#include "io/base/time/utc_time.h"

namespace backends {

// Thread-safe; allocates only when constructed. All communicators of a group share one. begin() and
// end() run in every call, so they take no lock and read the processor's cycle counter instead of
// the clock if that counter runs at a constant rate; to_json() converts it to the time of day.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 4096;

  // `time_of_day` returns microseconds since the epoch. That clock may be set while the recorder is
  // in use: each recorded time is the clock's value when the record is read, minus the time that
  // has passed since the event.
  explicit FlightRecorder(std::int64_t (*time_of_day)() = &base::unix_us);

  using Ticket = std::uint64_t;
  // `communicator` is its index in the order in which the group made communicators.
  Ticket begin(int communicator, const ControlWord& call) noexcept;
  void end(Ticket ticket, bool failed) noexcept;

  struct Running {
    int communicator;
    ControlWord call;
    std::int64_t waited_us;  // since it began
  };
  // Returns the call that has been running longest, also after kCapacity and more calls of other
  // communicators.
  std::optional<Running> running() const noexcept;

  struct Header {
    int rank = 0, world_size = 1, pid = 0;
    std::string host, backend, reason, activity;
    std::vector<std::string> membership = {};  // changes of an elastic job's members, as text
  };
  // Returns {"schema":1,"rank":0,...,"collectives":[...]}, oldest first, with times since the
  // epoch; a collective is
  // {"communicator":0,"sequence":1,"operation":"all_reduce","count":7,"type":"f32","op":"sum",
  // "begin_us":5,"end_us":9|null,"state":"done|running|failed"}.
  std::string to_json(const Header& header) const;

 private:
  // One cache line of the ring: ticket t is at t % kCapacity. A ticket is left out if its place
  // has a running call of another communicator. The writer of an entry is the thread
  // that made `stamp` odd; readers accept an entry whose stamp was the same before and after they
  // read the rest.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> stamp{0};               // 2 t + 1 while begin() writes, then 2 t + 2
    std::atomic<std::uint64_t> outcome{0};             // how the call ended (flight_recorder.cc)
    std::atomic<std::uint64_t> begin{0};               // ticks
    std::array<std::atomic<std::uint64_t>, 2> call{};  // a ControlWord
    std::atomic<int> communicator{0};
  };
  static_assert(sizeof(Entry) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);
  struct Call {
    Ticket ticket;
    Running what;
    std::int64_t begin_us;
    std::optional<std::int64_t> end_us;
    bool failed = false;
  };
  class Times;
  // Returns nothing if the entry has no call or is being written.
  static std::optional<Call> read(const Entry& entry, const Times& times) noexcept;

  std::vector<Entry> entries_;
  std::atomic<Ticket> next_{0};
  std::int64_t (*const time_of_day_)();
  const std::int64_t start_us_;  // from a clock that is never set
  const std::uint64_t start_ticks_;
};

}  // namespace backends
