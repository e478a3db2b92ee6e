// Runs a process of an elastic job: one group after the other.
#pragma once

#include "backends/group.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Runs until a body returns an exit code, which it returns. Throws errors that end the job.
int run_elastic_member(const backends::GroupOptions& options, const RunConfig& config,
                       const ElasticBody& body);

}  // namespace tools
