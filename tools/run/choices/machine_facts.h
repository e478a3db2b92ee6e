// Collects the machines of a start's ranks for the run's record.
#pragma once

#include <vector>

#include "tools/folder/run_record.h"
#include "tools/run/choices/compute_choice.h"

namespace tools {

// Returns the machines of all ranks, by the lowest rank on each; equal ones are merged. Collective
// over `control`, a communicator of all ranks. `threads`: this rank's.
std::vector<RunMachine> gather_machines(backends::Communicator& control, const Compute& compute,
                                        int threads);

}  // namespace tools
