// From a resolved configuration to running ranks: --spawn (processes or threads) or one rank of a
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

// Runs body(group) on every rank that this process stands for, and returns the exit code. The group
// has joined; it leaves in order when body returns, and without goodbye when it throws.
int run_group(const RunConfig& config, const std::function<int(backends::Group&)>& body);

// The same for an elastic job: body(group, view, pause) is run again with every group of the job
// that this process is in, until it returns an exit code. Nothing: it was paused, because `pause`
// said so on some rank. A failure of another rank, which is a backends::PeerError, ends the group
// and not the job.
using ElasticBody = std::function<std::optional<int>(
    backends::Group& group, const backends::View& view, const std::function<bool()>& pause)>;
int run_elastic(const RunConfig& config, const ElasticBody& body);

}  // namespace tools
