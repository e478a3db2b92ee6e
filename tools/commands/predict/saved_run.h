// Reads the run's options that a checkpoint stores, for commands that rebuild its model.
#pragma once

#include <string>
#include <vector>

#include "tools/options/table/option_table.h"
#include "tools/options/table/value_text.h"

namespace tools {

// Returns the options that determine model and data, which a command that rebuilds them takes from
// a checkpoint.
const std::vector<std::string>& saved_options();

// Fills `values` from a checkpoint's options (options_in()); existing entries stay, because the
// command line takes precedence.
void take_saved_options(const ConfigValues& saved, ConfigValues& values);

}  // namespace tools
