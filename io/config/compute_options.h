// The options of computing, read and checked: devices, number types, precision.
#pragma once

#include "io/config/option_rules.h"
#include "io/config/run_config.h"

namespace io {

// Fills the compute part of `config`. Whether the devices exist is not asked here. Throws as resolve_run_config().
void read_compute(const ValueReader& read, RunConfig& config);

}  // namespace io
