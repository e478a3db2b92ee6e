// Combines the groups, and searches for names.
#include "tools/options/table/option_table.h"

#include <algorithm>
#include <map>

#include "io/base/text/text_parts.h"
#include "tools/options/table/option_rows.h"

namespace tools {
namespace {

std::vector<OptionGroup> all_groups() {
  return {data_rows(),      compute_rows(), group_rows(),  sync_rows(),   batch_rows(),
          optimizer_rows(), state_rows(),   report_rows(), preempt_rows()};
}

// Returns a row with its place in the table and the structures' defaults.
OptionSpec completed(OptionSpec option, const std::string& group, RunConfig& defaults) {
  option.group = group;
  using Type = OptionSpec::Type;
  if (option.type() == Type::kInteger && option.metavar.empty()) option.metavar = "N";
  if (option.type() == Type::kReal && option.metavar.empty()) option.metavar = "F";
  if (!option.field.choices.empty()) option.metavar = base::join_text(option.field.choices, "|");
  if (option.initial)
    option.default_value = *option.initial;
  else if (option.field.text)
    option.default_value = option.field.text(defaults);
  return option;
}

struct OptionTable {
  std::vector<OptionSpec> options;
  std::map<std::string, std::size_t, std::less<>> places;  // index in `options`, by name and alias
  std::vector<GroupCheck> checks;
};

OptionTable whole_table() {
  OptionTable table;
  RunConfig defaults;
  for (OptionGroup& group : all_groups()) {
    for (OptionSpec& option : group.rows)
      table.options.push_back(completed(std::move(option), group.name, defaults));
    if (group.check != nullptr) table.checks.push_back(group.check);
  }
  for (std::size_t i = 0; i < table.options.size(); ++i) {
    table.places[table.options[i].name] = i;
    if (!table.options[i].alias.empty()) table.places[table.options[i].alias] = i;
  }
  return table;
}

const OptionTable& option_table() {
  static const OptionTable table = whole_table();
  return table;
}

}  // namespace

std::span<const OptionSpec> train_options() { return option_table().options; }

const OptionSpec* find_option(std::string_view name) {
  const OptionTable& table = option_table();
  const auto found = table.places.find(base::with_dashes(name));
  return found == table.places.end() ? nullptr : &table.options[found->second];
}

void check_groups(const GivenValues& given, RunConfig& config) {
  for (const GroupCheck check : option_table().checks) check(given, config);
}

bool belongs_to_one_start(std::string_view name) {
  const OptionSpec* option = find_option(name);
  return option != nullptr && option->on_resume == OptionSpec::OnResume::kOneStart;
}

ConfigValues options_of_run(const ConfigValues& values) {
  ConfigValues kept = values;
  std::erase_if(kept, [](const auto& entry) { return belongs_to_one_start(entry.first); });
  return kept;
}

Precedence precedence_of(const ConfigValue& value) {
  if (value.source.find(':') != std::string::npos)
    return Precedence::kFile;  // "PATH:LINE"; other sources have no colon
  if (value.source.starts_with("--")) return Precedence::kCommandLine;
  return value.source.starts_with("ENGINE_") ? Precedence::kEnvironment : Precedence::kDefault;
}

std::string environment_name(std::string_view option) {
  std::string name = "ENGINE_";
  for (const char c : option) {
    const bool lower = c >= 'a' && c <= 'z';
    name += c == '-' ? '_' : lower ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

void apply_defaults(ConfigValues& values) {
  for (const OptionSpec& option : train_options())
    values.try_emplace(option.name, ConfigValue{option.default_value, kDefaultSource});
}

}  // namespace tools
