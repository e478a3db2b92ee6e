// Determines how a process joins its group: from options, launchers' variables and its parent.
#pragma once

#include "backends/group.h"
#include "backends/identity/identity.h"
#include "tools/launch/workers/worker_processes.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Returns true if `engine launch` has restarted this process after a failure.
bool was_restarted();

// Returns what `engine launch` calls itself, the same after a restart; "": unknown.
std::string launch_id();

// Returns the identity from the options and the launchers' variables.
backends::Identity identity_of(const RunConfig& config);
// Sets the rendezvous and the rank of this process in `options`; prints warnings.
void take_identity(const backends::Identity& identity, backends::GroupOptions& options);

// Returns the options from launchers' variables and the command line, for a process that is one
// rank, or several.
backends::GroupOptions options_of_process(const RunConfig& config);
// Returns the options of a rank that --spawn has forked.
backends::GroupOptions options_of_worker(const RunConfig& config, const WorkerPlace& place);

}  // namespace tools
