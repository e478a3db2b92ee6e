// How a process joins its group: from options, launchers' variables and what forked it.
#pragma once

#include "backends/group.h"
#include "backends/identity/identity.h"
#include "tools/launch/workers/worker_processes.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Whether `engine launch` has started this process again after a failure.
bool was_restarted();

// What the options and the launchers' variables say of this process.
backends::Identity identity_of(const RunConfig& config);
// Where such a process meets the others, and as which rank; warnings are printed.
void take_identity(const backends::Identity& identity, backends::GroupOptions& options);

// As the launcher's variables and the options say, for a process that is one rank, or several.
backends::GroupOptions options_of_process(const RunConfig& config);
// Of a rank that --spawn has forked.
backends::GroupOptions options_of_worker(const RunConfig& config, const WorkerPlace& place);

}  // namespace tools
