// What the ranks of a start compute on, for the run's record.
#pragma once

#include <vector>

#include "tools/run/choices/compute_choice.h"
#include "tools/run/folder/run_record.h"

namespace tools {

// The machines of all ranks, by the lowest rank on each; equal ones are one. Collective over
// `control`, a communicator of all ranks. `threads`: of this rank.
std::vector<RunMachine> gather_machines(backends::Communicator& control, const Compute& compute,
                                        int threads);

}  // namespace tools
