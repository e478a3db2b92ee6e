// Runs a process of an elastic job: one group after the other.
#pragma once

#include <functional>
#include <optional>

#include "backends/group.h"
#include "backends/membership/membership.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Runs a process in one group of the job: returns an exit code, or nothing if it was paused,
// because `pause` returned true on some rank. It is called again with the next group.
using ElasticBody = std::function<std::optional<int>(
    backends::Group& group, const backends::View& view, const std::function<bool()>& pause)>;

// Runs until a body returns an exit code, which it returns. Throws errors that end the job.
int run_elastic_member(const backends::GroupOptions& options, const RunConfig& config,
                       const ElasticBody& body);

}  // namespace tools
