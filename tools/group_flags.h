// The group options of `engine train` for other commands that form a group.
#pragma once

#include "io/config/run_config.h"
#include "tools/command_line.h"

namespace tools {

// Adds the options of the table's group "group", --flight-dir, and those named in `more`.
void add_group_flags(CLI::App& app, io::ConfigValues& values, const std::vector<std::string>& more = {});

// Completes what the command line said from ENGINE_* and the defaults, looking at these options only: ENGINE_LR in the
// environment is of no concern to a command that does not train. `defaults` replaces defaults of the table.
io::RunConfig resolve_group_flags(io::ConfigValues values, const std::vector<std::string>& more = {},
                                  const std::map<std::string, std::string>& defaults = {});

// Whether this process is one rank of a group that somebody else started (a launcher's variables, or --rank).
bool in_launched_group(const io::RunConfig& config);

}  // namespace tools
