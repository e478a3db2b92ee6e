// The backends of this build and the choice among them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/group.h"

namespace backends {

std::span<const Backend> all_backends();

// The backends of which a communicator is made.
struct BackendPlan {
  const Backend* across =
      nullptr;  // connects the ranks, or with `within` one of each host; nullptr: not needed
  const Backend* within = nullptr;    // connects the ranks of a host; nullptr: no such stage
  const Backend* compared = nullptr;  // runs beside `across`, results are compared bit by bit
  std::string name, reason;           // "shm+gloo"; name "single": one rank, nothing to exchange
};

// Throws ConfigurationError when `backend` is unknown, missing in this build or
// for threads only.
void check_backend(const std::string& backend);
// "auto", "shm" or "off". Throws ConfigurationError.
LocalStage parse_local_stage(const std::string& text);

// For a group of processes; peers[r] is rank r. The result is equal on all ranks. Throws
// ConfigurationError.
BackendPlan plan_backend(const std::string& backend, LocalStage local_stage,
                         const std::vector<PeerInfo>& peers);

}  // namespace backends
