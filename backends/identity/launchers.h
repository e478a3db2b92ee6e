// Identities from launchers' environment variables: makes one claim per launcher, and merges
// claims.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/identity/identity.h"

namespace backends {

// A launcher's values. Fields that it does not give are empty.
struct Claim {
  const char* launcher = "";
  int depth = 0;  // a launcher may be started by one of smaller depth, not of larger depth
  ResolvedValue rank = {}, world_size = {}, local_rank = {}, local_world_size = {}, node_rank = {};
  ResolvedValue master_host = {};  // host of rank 0
  ResolvedValue job = {};          // unique to the job among those of a user
  bool set_by_user = false;        // RANK and so on
  bool one_per_node = false;       // one process on each node, which may start others
};

ResolvedValue variable(const Environment& environment,
                       const char* name);  // empty if it is unset or ""
// Throws ConfigurationError that names source, value and `expected`.
int whole_number(const ResolvedValue& from, int least, int most, const std::string& expected);

// Returns all claims of this environment, in order of precedence. SLURM arrays count only for a
// file:// rendezvous.
std::vector<Claim> read_claims(const Environment& environment, bool uses_file);

// Returns the first claim, completed from those that agree with it, or the inner one of two nested
// launchers. Throws ConfigurationError that names both variables if two claims contradict each
// other.
Claim reconcile(const std::vector<Claim>& claims);

// Returns e.g. "SLURM_STEP_NUM_TASKS=2" if a launcher has started this process as one of several
// ranks, for a notice if it starts ranks of its own. Only rank 0 of a launcher's processes has a
// text; RANK and WORLD_SIZE may be remains, so any rank has one. "" if variables contradict each
// other.
std::string started_tasks_text(const Environment& environment);

// Fills rank (and world size) from variables that are not a complete claim: PMIx, Kubernetes,
// torchrun's PET_*.
void complete_from_fallbacks(Claim& claim, const Environment& environment);

}  // namespace backends
