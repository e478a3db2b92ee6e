// Parses command lines: one option table, both spellings, the nearest name for a typing error.
#pragma once

#include <string>
#include <vector>

#include "tools/options/table/option_table.h"

namespace CLI {
class App;
}

namespace tools {

// The arguments after the command's name. A command returns the exit code, and throws exceptions
// that exit_code_of() knows.
using Arguments = std::vector<std::string>;

// Returns true if another process prints the same messages: the launcher above, or rank 0.
bool is_one_of_many();

// Replaces _ by - in the name of an option.
std::string hyphenated(std::string argument);

// Parses `arguments` with `app`. --flag_name is read as --flag-name. Prints help (help_text()) and
// returns false for --help [TOPIC], and without parsing for shape_of() (command_shape.h). Throws
// UsageError for an unknown option (with the nearest), a missing value, or typographic dashes and
// quotes.
[[nodiscard]] bool parse(CLI::App& app, Arguments arguments);

// Adds the options of the table whose names are in `only` (empty: all) to `app`; user values are
// stored in `values` with their source, and take precedence over every other source.
void add_table_options(CLI::App& app, ConfigValues& values,
                       const std::vector<std::string>& only = {});

// Adds the options of `engine train`: those of the table, and -c FILE, which is stored in
// `config_file`.
void add_train_options(CLI::App& app, ConfigValues& values, std::string& config_file);

// Completes `values` from ENGINE_* variables, the config file named by -c (may be ""), and the
// defaults, in this order of precedence.
void complete_values(ConfigValues& values, const std::string& config_file);

}  // namespace tools
