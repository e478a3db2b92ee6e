// Starts the ranks of a resolved configuration: --spawn (processes or threads) or one rank of a
// group started elsewhere.
#pragma once

#include <functional>
#include <optional>

#include "backends/group.h"
#include "backends/membership/membership.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Throws ConfigError if `ranks` are far more than this host's CPUs can run.
void check_spawn(int ranks);

// Runs body(group) on every rank of this process, and returns the exit code. The group has joined;
// it leaves in order if body returns, and is abandoned if body throws.
int run_group(const RunConfig& config, const std::function<int(backends::Group&)>& body);

// Does the same for an elastic job: body(group, view, pause) runs again with every group of the job
// that this process is in, until it returns an exit code. It returns nothing if it was paused,
// because `pause` returned true on some rank. A failure of another rank, which is a
// backends::PeerError, ends the group but not the job.
using ElasticBody = std::function<std::optional<int>(
    backends::Group& group, const backends::View& view, const std::function<bool()>& pause)>;
int run_elastic(const RunConfig& config, const ElasticBody& body);

}  // namespace tools
