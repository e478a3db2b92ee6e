// Reads the kernel's counters of the TCP connections between two ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/communicator.h"

namespace backends {

struct LinkCounters {
  std::uint64_t segments = 0;  // with data, sent by this rank, including those sent again
  std::uint64_t resent = 0;    // sent again, since they seemed lost
  LinkCounters& operator+=(const LinkCounters& other) {
    segments += other.segments;
    resent += other.resent;
    return *this;
  }
};

// A communicator may implement this in addition.
class LinkCounterSource {
 public:
  virtual ~LinkCounterSource() = default;
  // Returns the sums over the connections to `peer`, another rank; none if they are not known.
  virtual std::optional<LinkCounters> link_counters(int peer) const = 0;
};

// Returns none also for a communicator that counts nothing.
inline std::optional<LinkCounters> link_counters_of(const Communicator& communicator, int peer) {
  const auto* source = dynamic_cast<const LinkCounterSource*>(&communicator);
  return source == nullptr ? std::nullopt : source->link_counters(peer);
}

}  // namespace backends
