// Measures the offsets between the steady clocks of ranks. The clocks of different hosts start at
// arbitrary times; those of one host are the same.
#pragma once

#include <cstdint>
#include <functional>

#include "backends/communicator.h"

namespace tools {

std::int64_t steady_ns();

struct ClockOffset {
  std::int64_t at_ns = 0;     // time of the measurement on this rank's clock
  std::int64_t ns = 0;        // added to this rank's clock, gives rank 0's
  std::int64_t error_ns = 0;  // maximum error
};

// Collective. Every rank asks rank 0 for its time a few times, and uses the shortest round trip,
// within which rank 0 read its clock (as in Cristian, Probabilistic clock synchronization, 1989).
// An offset smaller than its error is set to 0. `now` is the clock.
ClockOffset measure_clock_offset(backends::Communicator& communicator,
                                 const std::function<std::int64_t()>& now = steady_ns);

}  // namespace tools
