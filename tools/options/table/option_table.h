// All options of `engine train` in one table (rows: option_spec.h), and their values.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_spec.h"

namespace tools {

std::span<const OptionSpec> train_options();  // by group; only those that this build supports
// Accepts - and _, and earlier names; nullptr if unknown.
const OptionSpec* find_option(std::string_view name);
std::string environment_name(std::string_view option);  // "sync-every" -> "ENGINE_SYNC_EVERY"

struct ConfigValue {
  std::string value;   // "": unset
  std::string source;  // "--lr", "ENGINE_LR", "run.toml:3", "default"
};
// Maps option names, spelled with -, to values.
using ConfigValues = std::map<std::string, ConfigValue, std::less<>>;

// Sources of values that were not given: the option's default, or what is left of an option that
// plays no part in the run.
inline constexpr const char *kDefaultSource = "default", *kUnusedSource = "not used";
inline bool is_default(const ConfigValue& value) { return value.source == kDefaultSource; }
inline bool is_chosen(const ConfigValue& value) {
  return !is_default(value) && value.source != kUnusedSource;
}

// The kinds of sources; a greater one takes precedence.
enum class Precedence { kDefault, kFile, kEnvironment, kCommandLine };
Precedence precedence_of(const ConfigValue& value);  // from the form of its source

// Returns true for options that describe the ranks, files and beginning of a single start: a run
// does not store them, and nothing is compared with them.
bool belongs_to_one_start(std::string_view name);
ConfigValues options_of_run(const ConfigValues& values);  // all other options

// Adds the default of every option that has no entry yet.
void apply_defaults(ConfigValues& values);

}  // namespace tools
