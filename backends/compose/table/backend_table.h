// The backends of this build and the choice among them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/group.h"

namespace backends {

std::span<const Backend> all_backends();

// What a communicator is made of.
struct BackendPlan {
  const Backend* across =
      nullptr;  // joins the ranks, or with `within` one rank of each host; nullptr: not needed
  const Backend* within = nullptr;    // joins the ranks of a host first; nullptr: no such stage
  const Backend* compared = nullptr;  // runs beside `across`, results are compared bit by bit
  std::string name, reason;           // "shm+gloo"; name "single": one rank, nothing to exchange
};

// Throws ConfigurationError when `backend` or `local_stage` is unknown, missing in this build or
// for threads only.
void check_backend(const std::string& backend, const std::string& local_stage);

// For a group of processes of which peers[r] is rank r. Equal on all ranks. Throws
// ConfigurationError.
BackendPlan plan_backend(const std::string& backend, const std::string& local_stage,
                         const std::vector<PeerInfo>& peers);

}  // namespace backends
