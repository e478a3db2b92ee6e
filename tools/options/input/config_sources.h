// Reads the values of options from environment variables and TOML files.
#pragma once

#include <string>

#include "tools/options/table/option_table.h"

namespace tools {

// The sources are applied in decreasing precedence: the caller stores the values of the command
// line (source "--name", flags as "true" or "false"), then calls apply_environment,
// apply_config_file and apply_defaults. None of them changes an existing entry, so flag > ENGINE_*
// > config file > default.

// Adds the values of ENGINE_* variables; ignores names that belong to no option, and empty values.
// Throws ConfigError if an option is set by its name and an earlier one.
void apply_environment(ConfigValues& values);
// Adds the values of a TOML file: keys are option names at the top level or in the table of their
// group. `include = "other.toml"` (or a list, in which later files win) names files, relative to
// this one, whose values apply if this file has none. ${NAME} in a string is replaced by the
// environment variable, for options of any type, and $$ by a $. Throws ConfigError with file and
// line for a variable that is not set, an unknown key (with the nearest), a key that is repeated or
// in another group's table, a wrong type (with the expected one), a syntax error, an unreadable
// file, or a cycle of includes.
void apply_config_file(const std::string& path, ConfigValues& values);
// Does the same for text from a checkpoint, without includes; `name` replaces the file name in
// messages.
void apply_config_text(const std::string& text, const std::string& name, ConfigValues& values);

}  // namespace tools
