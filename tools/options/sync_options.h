// The options of averaging, read and checked.
#pragma once

#include "tools/options/option_rules.h"
#include "tools/options/run_config.h"

namespace tools {

// Fills the sync part of `config`. Throws as resolve_run_config().
void read_sync(const ValueReader& read, RunConfig& config);

}  // namespace tools
