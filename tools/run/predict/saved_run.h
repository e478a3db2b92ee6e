// What a checkpoint keeps of the run that wrote it, for commands that rebuild its model.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "tools/options/table/option_table.h"
#include "tools/options/table/value_text.h"

namespace tools {

// Options that shape model and data: what a command that rebuilds them takes from a checkpoint.
const std::vector<std::string>& saved_options();

// Fills `values` from the checkpoint's configuration; what is in it already stays, for the command
// line may say otherwise. Throws io::ConfigError for a configuration that does not parse; `path`
// stands for the file.
void take_saved_options(const io::Checkpoint& checkpoint, const std::string& path,
                        tools::ConfigValues& values);

}  // namespace tools
