// From a resolved configuration to running ranks: --spawn (processes or threads) or one rank of a
// group started elsewhere.
#pragma once

#include <functional>

#include "backends/group.h"
#include "tools/options/run_config.h"

namespace tools {

// Runs body(group) on every rank that this process stands for, and returns the exit code. The group
// has joined; it leaves in order when body returns, and without goodbye when it throws.
int run_group(const tools::RunConfig& config, const std::function<int(backends::Group&)>& body);

// Whether `engine launch` has started this process again after a failure.
bool was_restarted();

}  // namespace tools
