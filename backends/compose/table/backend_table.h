// The backends of this build and the choice among them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/group.h"

namespace backends {

std::span<const Backend> all_backends();

// The backends that a communicator consists of.
struct BackendPlan {
  // Connects all ranks or, with `within`, one of each host; nullptr: not needed.
  const Backend* across = nullptr;
  const Backend* within = nullptr;    // connects the ranks of a host; nullptr: no such stage
  const Backend* compared = nullptr;  // runs beside `across`; results are compared bit by bit
  std::string name, reason;           // name is e.g. "shm+gloo"; "single": one rank, no exchange
};

// Throws ConfigurationError when `backend` is unknown, missing in this build or
// for threads only.
void check_backend(const std::string& backend);
// "auto", "shm" or "off". Throws ConfigurationError.
LocalStage parse_local_stage(const std::string& text);

// Plans for a group of processes; peers[r] is rank r. The result is equal on all ranks. Throws
// ConfigurationError.
BackendPlan plan_backend(const std::string& backend, LocalStage local_stage,
                         const std::vector<PeerInfo>& peers);

}  // namespace backends
