// Keeps the last collectives of a rank in memory, to be written out on a failure: they show what
// the rank was waiting for.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/control_word.h"

namespace backends {

// Thread-safe; allocates only when made. One for all communicators of a group.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 4096;

  FlightRecorder();

  using Ticket = std::uint64_t;
  // `communicator`: its index in the order in which the group made them.
  Ticket begin(int communicator, const ControlWord& call) noexcept;
  void end(Ticket ticket, bool failed) noexcept;

  struct Running {
    int communicator;
    ControlWord call;
    std::int64_t since_us;  // since the epoch
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
  struct Entry {
    ControlWord call;
    int communicator = 0;
    std::int64_t begin_us = 0, end_us = 0;  // 0: not ended
    bool failed = false;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // a ring: ticket t is at t % kCapacity
  Ticket next_ = 0;
};

}  // namespace backends
