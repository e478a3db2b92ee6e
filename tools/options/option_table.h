// Every option of `engine train` in one table: command line, environment (ENGINE_X), config file
// and --help are made from it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct OptionSpec {
  enum class Type {
    kString,
    kInteger,
    kReal,
    kFlag,  // --x, --no-x; text "true" or "false"
    kChoice,
    kInterval,  // "2e" epochs, "500s" or "500" steps
    kList,      // integers with commas, "30,60"
    kDevices,   // numbers of devices, "0 1", "0,1" or "0-3"; "none"
  };
  enum class Agreement {
    kFree,      // may differ between ranks
    kEqual,     // the same value on all ranks
    kPresence,  // set on all ranks or on none
  };
  const char* name;  // "sync-every": --sync-every, --sync_every, ENGINE_SYNC_EVERY, key sync-every
  Type type;
  const char* default_value;  // as text; "" = unset
  const char* metavar;        // "K"; for kChoice the choices "grad|params|none"; "" for kFlag
  const char* group;          // "sync": heading in --help, optional [table] in the config file
  const char* help;           // one line, no full stop
  Agreement agreement;        // what agreed_settings() lists
};

std::span<const OptionSpec> train_options();  // ordered by group; only what this build can do
const OptionSpec* find_option(std::string_view name);   // accepts - and _; nullptr when unknown
std::string environment_name(std::string_view option);  // "sync-every" -> "ENGINE_SYNC_EVERY"

struct ConfigValue {
  std::string value;   // "" = unset
  std::string source;  // "--lr", "ENGINE_LR", "run.toml:3", "default"
};
using ConfigValues =
    std::map<std::string, ConfigValue, std::less<>>;  // by option name, spelt with -

// Where a value came from; a greater one wins.
enum class Precedence { kDefault, kFile, kEnvironment, kCommandLine };
Precedence precedence_of(const ConfigValue& value);  // by the form of its source

// The sources are applied from the strongest to the weakest: the caller enters what the command
// line said (source
// "--name", flags as "true" or "false"), then calls apply_environment, apply_config_file and
// apply_defaults. None of them touches an entry that is already there, so flag > ENGINE_* > config
// file > default.

// Adds the values of ENGINE_* variables; names that are no option's are left alone, and so are
// empty values.
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
