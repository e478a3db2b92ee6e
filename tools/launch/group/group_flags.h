// Provides the group options of `engine train` for other commands that form a group.
#pragma once

#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"

namespace CLI {
class App;
}

namespace tools {

// Adds the options of the table's group "group", --flight-dir, and those named in `more`.
void add_group_flags(CLI::App& app, ConfigValues& values,
                     const std::vector<std::string>& more = {});

// Completes the command line from ENGINE_* and the defaults, for these options only: ENGINE_LR in
// the environment does not concern a command that does not train. `defaults` replaces defaults of
// the table.
RunConfig resolve_group_flags(ConfigValues values, const std::vector<std::string>& more = {},
                              const std::map<std::string, std::string>& defaults = {});

// Replaces `--spawn` without a number by the number of visible GPUs, or of cores. Returns the
// choice and its reason; "" if there was no choice. Requires complete values (apply_defaults()).
std::string resolve_spawn(ConfigValues& values);

// Returns true if this process is one rank of a group that was started elsewhere (a launcher's
// variables, or --rank).
bool in_launched_group(const RunConfig& config);

// Returns true if rank 0 is in this process, or started by it.
bool has_rank_zero(const RunConfig& config);

}  // namespace tools
