// Starts the ranks of a resolved configuration: --spawn (processes or threads) or one rank of a
// group started elsewhere.
#pragma once

#include <functional>

#include "backends/group.h"
#include "tools/launch/group/elastic_rank.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Throws ConfigError if `ranks` are far more than this host's CPUs can run.
void check_spawn(int ranks);

// Runs body(group) on every rank of this process, and returns the exit code. The group has joined;
// it leaves in order if body returns, and is abandoned if body throws.
int run_group(const RunConfig& config, const std::function<int(backends::Group&)>& body);

// Does the same for an elastic job, with every group of the job that this process is in. A failure
// of another rank, which is a backends::PeerError, ends the group but not the job.
int run_elastic(const RunConfig& config, const ElasticBody& body);

}  // namespace tools
