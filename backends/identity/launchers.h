// What launchers tell a process through environment variables: one claim per launcher, and how
// claims are merged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/identity/identity.h"

namespace backends {

// Fields that a launcher does not give are empty.
struct Claim {
  const char* launcher = "";
  int depth = 0;  // a launcher of larger depth may have been started by one of smaller depth, never
                  // the other way round
  ResolvedValue rank = {}, world_size = {}, local_rank = {}, local_world_size = {}, node_rank = {};
  ResolvedValue master_host = {};  // where rank 0 runs
  ResolvedValue job = {};          // unique to the job among those of a user
  bool is_users_own = false;       // RANK and its like
  bool one_a_node = false;         // it starts one process on each node, which may start others
};

ResolvedValue variable(const Environment& environment,
                       const char* name);  // empty where unset or ""
// Throws ConfigurationError that names source, value and `expected`.
int whole_number(const ResolvedValue& from, int least, int most, const std::string& expected);

// All claims of this environment, in order of precedence. A SLURM array is one only where ranks
// meet at a file.
std::vector<Claim> read_claims(const Environment& environment, bool meets_at_file);

// The claim that holds: the first one, completed from those that say the same, or the inner one of
// two nested launchers. Throws ConfigurationError naming both variables where two contradict each
// other.
Claim reconcile(const std::vector<Claim>& claims);

// Fills rank (and world size) from variables that give no whole claim: PMIx, Kubernetes, torchrun's
// PET_*.
void complete_from_fallbacks(Claim& claim, const Environment& environment);

}  // namespace backends
