// How far the steady clocks of ranks are apart. Those of hosts begin anywhere; those of one host
// are the same.
#pragma once

#include <cstdint>
#include <functional>

#include "backends/communicator.h"

namespace tools {

std::int64_t steady_ns();

struct ClockOffset {
  std::int64_t at_ns = 0;     // on this rank's clock: when it was measured
  std::int64_t ns = 0;        // to be added to this rank's clock to have rank 0's
  std::int64_t error_ns = 0;  // the most that it can be wrong by
};

// Collective. Every rank asks rank 0 for its time a few times, and the shortest round trip counts:
// rank 0 looked at its clock within it (as in Cristian, Probabilistic clock synchronization, 1989).
// An offset that is smaller than its error is none. `now` is the clock.
ClockOffset measure_clock_offset(backends::Communicator& communicator,
                                 const std::function<std::int64_t()>& now = steady_ns);

}  // namespace tools
