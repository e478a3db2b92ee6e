// Makes round trips from broadcasts, for one rank after the other; all other ranks take part
// passively.
#include "tools/report/trace/clock_offset.h"

#include <cstdlib>

#include "io/base/time/trace.h"

namespace tools {
namespace {

constexpr int kRoundTrips = 16;

}  // namespace

std::int64_t steady_ns() { return base::Tracer::now_ns(); }

ClockOffset measure_clock_offset(backends::Communicator& communicator,
                                 const std::function<std::int64_t()>& now) {
  ClockOffset own{.at_ns = now(), .ns = 0, .error_ns = 0};
  const int world = communicator.world_size(), rank = communicator.rank();
  for (int asking = 1; asking < world; ++asking) {
    std::int64_t shortest = INT64_MAX;
    for (int trip = 0; trip < kRoundTrips; ++trip) {
      const std::int64_t asked = now();
      std::int64_t question = 0;
      communicator.broadcast(&question, sizeof question, asking);
      std::int64_t answer = rank == 0 ? now() : 0;
      communicator.broadcast(&answer, sizeof answer, 0);
      const std::int64_t answered = now(), round_trip = answered - asked;
      if (rank != asking || round_trip >= shortest) continue;
      shortest = round_trip;
      own = {.at_ns = asked + round_trip / 2,
             .ns = answer - (asked + round_trip / 2),
             .error_ns = round_trip / 2 + 1};
    }
  }
  if (std::abs(own.ns) <= own.error_ns) own.ns = 0;
  return own;
}

}  // namespace tools
