// The options of averaging, read and checked.
#pragma once

#include "io/config/option_rules.h"
#include "io/config/run_config.h"

namespace io {

// Fills the sync part of `config`. Throws as resolve_run_config().
void read_sync(const ValueReader& read, RunConfig& config);

}  // namespace io
