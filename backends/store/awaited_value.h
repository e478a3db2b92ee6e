// Waits for what another rank publishes in the store while a communicator is made.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "backends/backend.h"

namespace backends {

// Returns the value of `key`. Throws PeerError at the deadline of the context's clock: "timeout
// after 60000 ms, waiting for " and `what`, e.g. "the address of rank 1"; and what the store throws
// before. Waits in slices, because the store waits by another clock.
inline std::string awaited_value(const BackendContext& context, const std::string& key,
                                 base::Deadline deadline, const std::string& what) {
  for (;;) {
    const auto slice = std::max(context.clock.sleep_time(deadline), std::chrono::milliseconds(1));
    const base::Deadline end = base::deadline_in(slice);
    try {
      return context.store.get(key, slice);
    } catch (const PeerError&) {
      if (!base::has_passed(end)) throw;  // it is not the end of the slice
      if (!context.clock.has_passed(deadline)) continue;
    }
    throw PeerError("timeout after " + std::to_string(context.time_to_connect().count()) +
                    " ms, waiting for " + what);
  }
}

}  // namespace backends
