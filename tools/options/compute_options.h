// The options of computing, read and checked: devices, number types, precision.
#pragma once

#include "tools/options/option_rules.h"
#include "tools/options/run_config.h"

namespace tools {

// Fills the compute part of `config`. Whether the devices exist is not asked here. Throws as
// resolve_run_config().
void read_compute(const ValueReader& read, RunConfig& config);

}  // namespace tools
