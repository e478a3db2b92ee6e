// CLI11 behind the option table.
#include "tools/options/command_line.h"

#include <algorithm>
#include <iostream>
#include <string_view>

#include "io/base/nearest.h"
#include "io/base/text_parts.h"
#include "tools/report/exit_codes.h"

namespace tools {
namespace {

// Dashes and quotes that word processors put where a shell command had - and ".
bool has_typography(const std::string& argument) {
  for (const char* mark : {"\u2014", "\u2013", "\u2012", "\u2212"})
    if (argument.starts_with(mark)) return true;
  for (const char* mark : {"\u201c", "\u201d", "\u2018", "\u2019"})
    if (argument.find(mark) != std::string::npos) return true;
  return false;
}

std::string with_hyphens(const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  std::string result = argument;
  const auto end = std::min(result.find('='), result.size());
  std::replace(result.begin() + 2, result.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return result;
}

void check_known(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known{"help"};
  for (const CLI::Option* option : app.get_options())
    for (const std::string& l : option->get_lnames()) known.push_back(l);
  if (std::find(known.begin(), known.end(), name.substr(2)) != known.end()) return;
  throw UsageError("unknown option '" + name + "'" +
                   base::did_you_mean(name.substr(2), known, "--") + " (" + app.get_name() +
                   " --help lists all)");
}

}  // namespace

bool parse(CLI::App& app, Arguments arguments) {
  bool options_end = false;
  for (std::string& argument : arguments) {
    if (has_typography(argument))
      throw UsageError("'" + argument +
                       "' has a typographic dash or quote, as pasted from a formatted page: type - "
                       "and \" by hand");
    argument = options_end ? argument : with_hyphens(argument);
    if (argument == "--") options_end = true;
    if (!options_end && argument.starts_with("--")) check_known(app, argument);
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (" + app.get_name() + " --help)");
  }
  return true;
}

void add_table_options(CLI::App& app, tools::ConfigValues& values,
                       const std::vector<std::string>& only) {
  for (const tools::OptionSpec& spec : tools::train_options()) {
    if (!only.empty() && std::find(only.begin(), only.end(), spec.name) == only.end()) continue;
    const std::string flag = std::string("--") + spec.name;
    CLI::Option* option = nullptr;
    if (spec.type == tools::OptionSpec::Type::kFlag) {
      const bool on = std::string_view(spec.default_value) == "true";
      option = app.add_flag_callback(
          flag,
          [&values, spec, flag] {
            values[spec.name] = {"true", flag};
          },
          spec.help + (on ? " [default: on; --no-" + std::string(spec.name) + ": off]" : ""));
      app.add_flag_callback("--no-" + std::string(spec.name),
                            [&values, spec] {
                              values[spec.name] = {"false", "--no-" + std::string(spec.name)};
                            })
          ->group("");  // hidden: named with the positive form
    } else if (spec.type == tools::OptionSpec::Type::kDevices) {  // "0 1" as one argument or as two
      option = app.add_option_function<std::vector<std::string>>(
          flag,
          [&values, spec, flag](const std::vector<std::string>& words) {
            values[spec.name] = {base::join_text(words, " "), flag};
          },
          spec.help);
      option->type_name(spec.metavar)->expected(1, CLI::detail::expected_max_vector_size);
    } else {
      option = app.add_option_function<std::string>(
          flag,
          [&values, spec, flag](const std::string& value) {
            values[spec.name] = {value, flag};
          },
          spec.help);
      option->type_name(spec.metavar)
          ->default_str(spec.default_value)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    option->group(spec.group);
  }
}

void add_train_options(CLI::App& app, tools::ConfigValues& values, std::string& config_file) {
  app.add_option("-c,--config", config_file,
                 "TOML file with options as keys; ${NAME} in a value is the environment's variable")
      ->type_name("FILE.toml")
      ->group("config");
  add_table_options(app, values);
}

void complete_values(tools::ConfigValues& values, const std::string& config_file) {
  tools::apply_environment(values);
  if (!config_file.empty()) tools::apply_config_file(config_file, values);
  tools::apply_defaults(values);
}

}  // namespace tools
