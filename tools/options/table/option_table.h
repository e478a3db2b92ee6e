// Every option of `engine train` in one table (rows: option_spec.h), and the sources of values.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_spec.h"

namespace tools {

std::span<const OptionSpec> train_options();  // ordered by group; only what this build can do
// Accepts - and _, and earlier names; nullptr if unknown.
const OptionSpec* find_option(std::string_view name);
std::string environment_name(std::string_view option);  // "sync-every" -> "ENGINE_SYNC_EVERY"

struct ConfigValue {
  std::string value;   // "" = unset
  std::string source;  // "--lr", "ENGINE_LR", "run.toml:3", "default"
};
using ConfigValues =
    std::map<std::string, ConfigValue, std::less<>>;  // by option name, spelt with -

// Sources of values that nobody gave: the option's default, or what is left of an option that plays
// no part in the run.
inline constexpr const char *kDefaultSource = "default", *kUnusedSource = "not used";
inline bool is_default(const ConfigValue& value) { return value.source == kDefaultSource; }
inline bool is_chosen(const ConfigValue& value) {
  return !is_default(value) && value.source != kUnusedSource;
}

// Where a value came from; a greater one wins.
enum class Precedence { kDefault, kFile, kEnvironment, kCommandLine };
Precedence precedence_of(const ConfigValue& value);  // by the form of its source

// Options that say where one start's ranks and files are and how it begins: a run does not keep
// them, and nothing is compared with them.
bool belongs_to_one_start(std::string_view name);
ConfigValues options_of_run(const ConfigValues& values);  // all others

// The sources are applied from the strongest to the weakest: the caller enters what the command
// line said (source "--name", flags as "true" or "false"), then calls apply_environment,
// apply_config_file and apply_defaults. None of them touches an entry that is already there, so
// flag > ENGINE_* > config file > default.

// Adds the values of ENGINE_* variables; names that are no option's are left alone, and so are
// empty values. Throws ConfigError if an option is set by its name and an earlier one.
void apply_environment(ConfigValues& values);
// Adds the values of a TOML file: keys are option names at the top level or in the table of their
// group. `include = "other.toml"` (or a list, of which later ones win) names files, relative to
// this one, whose values hold where this file says nothing. ${NAME} in a string stands for the
// environment's variable, for options of any type, and $$ for a $. Throws ConfigError with file and
// line: a variable that is not set,
// unknown key (with the nearest), key twice or in another group's table, wrong type (with the one
// expected), syntax, unreadable file, includes in a circle.
void apply_config_file(const std::string& path, ConfigValues& values);
// The same from text that a checkpoint holds, without includes; `name` stands for the file in
// messages.
void apply_config_text(const std::string& text, const std::string& name, ConfigValues& values);
// Adds the default of every option that has no entry yet.
void apply_defaults(ConfigValues& values);

}  // namespace tools
