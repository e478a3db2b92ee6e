// Reads the run's options that a checkpoint stores, for commands that rebuild its model.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "tools/options/table/option_table.h"
#include "tools/options/table/value_text.h"

namespace tools {

// Returns the options that determine model and data, which a command that rebuilds them takes from
// a checkpoint.
const std::vector<std::string>& saved_options();

// Fills `values` from the checkpoint's configuration; existing entries stay, because the command
// line takes precedence. Throws io::ConfigError for a configuration that does not parse; `path`
// names the file.
void take_saved_options(const io::Checkpoint& checkpoint, const std::string& path,
                        tools::ConfigValues& values);

}  // namespace tools
