// Reads SLURM's variables: job steps started by srun, job arrays, and batch scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/identity/launchers.h"

namespace backends {

// Returns the claim of a task of a job step (srun); empty in a batch script or an interactive
// allocation. Throws ConfigurationError for an invalid variable.
std::optional<Claim> slurm_step_claim(const Environment& environment);

// Returns the claim of an element of a job array whose elements are the ranks: rank = (ID - MIN) /
// STEP of COUNT. Throws ConfigurationError for an array without a regular step.
std::optional<Claim> slurm_array_claim(const Environment& environment);

// Returns a line for the user if this process is in a SLURM job of several tasks, but is not one of
// them; else "". Throws ConfigurationError for a task whose step is unknown, which would train
// alone.
std::string slurm_batch_notice(const Environment& environment);

// Expands "2(x3),1" to 2 2 2 1. Throws ConfigurationError that names the source.
std::vector<int> tasks_per_node(const ResolvedValue& from);

// Returns the smallest id of "10,9" or "2-3" by value, not by text. Throws ConfigurationError that
// names the source.
int smallest_gpu(const ResolvedValue& from);

}  // namespace backends
