// Adapts CLI11 to the option table.
#include "tools/options/input/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <regex>

#include "io/base/text/escape_text.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tools/options/input/command_shape.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/input/foreign_options.h"
#include "tools/options/input/help_text.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

// Detects dashes and quotes that word processors put in place of - and ".
bool has_typography(const std::string& argument) {
  for (const char* mark : {"\u2014", "\u2013", "\u2012", "\u2212"})
    if (argument.starts_with(mark)) return true;
  for (const char* mark : {"\u201c", "\u201d", "\u2018", "\u2019"})
    if (argument.find(mark) != std::string::npos) return true;
  return false;
}

void check_known(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known{"help"};
  for (const CLI::Option* option : app.get_options())
    for (const std::string& l : option->get_lnames()) known.push_back(l);
  if (std::find(known.begin(), known.end(), name.substr(2)) != known.end()) return;
  std::string hint = foreign_hint(name.substr(2), known);
  if (hint.empty()) hint = base::did_you_mean(name.substr(2), known, "--");
  throw UsageError("unknown option '" + name + "'" + hint + " (" + app.get_name() +
                   " --help all lists all)");
}

// Returns e.g. "--split is 'tset': did you mean 'test'? (expected one of test, val, train)"; "" for
// other texts.
std::string unknown_choice(const std::string& text) {
  constexpr std::string_view kMiddle = " not in {";
  const std::size_t name_end = text.find(": "), middle = text.find(kMiddle);
  if (name_end == std::string::npos || middle == std::string::npos || !text.ends_with('}'))
    return "";
  const std::string name = text.substr(0, name_end),
                    value = text.substr(name_end + 2, middle - name_end - 2);
  const std::size_t list = middle + kMiddle.size();
  const std::vector<std::string> choices =
      base::split_text(text.substr(list, text.size() - list - 1), ',');
  const std::string found = name + " is '" + value + "'",
                    expected = "expected one of " + base::join_text(choices);
  const std::string hint = base::did_you_mean(value, choices);
  return hint.empty() ? found + "; " + expected : found + hint + " (" + expected + ")";
}

// Returns e.g. "--rounds is '0'; expected ..." from value_check.h; "" for other texts.
std::string no_number(const std::string& text) {
  const std::size_t middle = text.find(": is '");
  return middle == std::string::npos ? "" : text.substr(0, middle) + text.substr(middle + 1);
}

// Returns CLI11's error as a sentence.
std::string fault_text(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.starts_with('-') &&
      (text.ends_with(" missing") || text.ends_with(" received 0")))
    return text.substr(0, text.find(':')) + " needs a value";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = app.remaining();
    return std::string(extras.size() == 1 ? "unexpected argument: " : "unexpected arguments: ") +
           base::join_text(extras, " ");
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    for (const CLI::Option* option : app.get_options())
      if (option->get_positional() && text.starts_with(option->get_name() + " ")) {
        const std::string type = option->get_type_name(), kind = type.substr(0, type.find(':'));
        return app.get_name() + " needs " + option->get_name() +
               (kind.find('|') == std::string::npos ? "" : ", which is " + kind);
      }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr)
    return std::regex_replace(text, std::regex("(\\S+) excludes (\\S+)"),
                              "$1 and $2 exclude each other; give only one");
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr)
    for (const std::string& better : {unknown_choice(text), no_number(text)})
      if (!better.empty()) return better;
  return text;
}

// Returns true if a repeated option would have to choose one of its values.
bool holds_one(const CLI::Option& option) {
  return !option.get_positional() && option.get_items_expected_max() == 1 &&
         option.get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll;
}

// E.g. "0.10" and "0.1" are one rate.
bool same_value(const CLI::Option& option, const std::string& a, const std::string& b) {
  const OptionSpec* spec =
      option.get_lnames().empty() ? nullptr : find_option(option.get_lnames().front());
  const auto spelled = [spec](const std::string& text) {
    return spec == nullptr ? text : canonical_text(*spec, text).value_or(text);
  };
  return spelled(a) == spelled(b);
}

// Only a notice: scripts append an option to override an earlier one.
void report_repeats(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (holds_one(*option) && option->count() > 1 && !is_one_of_many() &&
        !same_value(*option, option->results().front(), option->results().back()))
      std::cerr << "engine: " << option->get_name() << " is given twice, as '"
                << base::escape_text(option->results().front()) << "' and as '"
                << base::escape_text(option->results().back()) << "': the last counts\n";
    for (const std::string& name : option->get_lnames())
      if (const CLI::Option* no = app.get_option_no_throw("--no-" + name);
          no != nullptr && no->count() > 0 && option->count() > 0)
        throw UsageError("--" + name + " and --no-" + name + " are both given: give one of them (" +
                         app.get_name() + " --help)");
  }
}

// Returns the option that `argument` names, if it needs a value and has none with it; or null.
const CLI::Option* needs_value(const CLI::App& app, const std::string& argument) {
  if (!argument.starts_with("-") || argument == "--") return nullptr;
  const CLI::Option* option = app.get_option_no_throw(argument);
  return option != nullptr && option->get_items_expected_min() > 0 ? option : nullptr;
}

// CLI11 would take the next option's name for the value.
void check_is_value(const CLI::App& app, const CLI::Option* of, const std::string& argument) {
  const bool names = argument.starts_with("--") ||
                     (argument.starts_with("-") && app.get_option_no_throw(argument) != nullptr);
  if (of != nullptr && names)
    throw UsageError(of->get_name() + " needs a value, but " +
                     argument.substr(0, argument.find('=')) + " comes after it (" + app.get_name() +
                     " --help)");
}

// "--shuffle=false" means --no-shuffle; CLI11 would ignore it.
std::string plain_flag(const CLI::App& app, const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (!argument.starts_with("--") || equals == std::string::npos) return argument;
  const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr || option->get_items_expected_max() > 0) return argument;
  const std::string opposite =
      name.starts_with("--no-") ? "--" + name.substr(5) : "--no-" + name.substr(2);
  const std::optional<bool> on = parse_flag(value);
  if (on && (*on || app.get_option_no_throw(opposite) != nullptr)) return *on ? name : opposite;
  throw UsageError(name + " is '" + value + "'; it takes no value: " +
                   (on ? "leave it out" : "expected " + name + " alone, or true or false") + " (" +
                   app.get_name() + " --help)");
}

// Returns the requested help topic: "" without a topic; nothing if help is not requested.
std::optional<std::string> help_topic(const Arguments& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  const auto asked = std::find_if(arguments.begin(), end,
                                  [](const auto& a) { return a == "--help" || a == "-h"; });
  if (asked == end) return std::nullopt;
  return asked + 1 == end ? "" : *(asked + 1);
}

}  // namespace

bool is_one_of_many() {
  if (std::getenv("ENGINE_RESTART_COUNT") != nullptr) return true;
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                           "MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr && std::string_view(rank) != "0") return true;
  }
  return false;
}

std::string hyphenated(std::string argument) {
  const auto end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

bool parse(CLI::App& app, Arguments arguments) {
  if (capture_shape(app)) return false;
  if (const std::optional<std::string> topic = help_topic(arguments)) {
    std::cout << help_text(shape_of(app), *topic, help_width());
    return false;
  }
  bool options_end = false;
  const CLI::Option* open = nullptr;  // the previous option, which needs its value
  for (std::string& argument : arguments) {
    if (has_typography(argument))
      throw UsageError("'" + argument +
                       "' has a typographic dash or quote, as pasted from a formatted page: type - "
                       "and \" by hand");
    if (!options_end && argument.starts_with("--")) argument = hyphenated(argument);
    check_is_value(app, open, argument);
    open = options_end || open != nullptr ? nullptr : needs_value(app, argument);
    if (argument == "--") options_end = true;
    if (!options_end && argument.starts_with("--")) check_known(app, argument);
    if (!options_end) argument = plain_flag(app, argument);
  }
  for (CLI::Option* option : app.get_options())
    if (holds_one(*option)) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw UsageError(fault_text(app, error) + " (" + app.get_name() + " --help)");
  }
  report_repeats(app);
  return true;
}

namespace {

// Returns e.g. "--lr-milestones,--lr-step-epochs"; with the prefix "no-" the names of the opposite
// flag.
std::string spellings_of(const OptionSpec& spec, const std::string& prefix = "") {
  const std::string name = "--" + prefix + spec.name;
  return spec.alias.empty() ? name : name + ",--" + prefix + spec.alias;
}

CLI::Option* add_flag(CLI::App& app, ConfigValues& values, const OptionSpec& spec) {
  const std::string &name = spec.name, flag = "--" + name, opposite = "--no-" + name;
  const auto set = [&values, &name](const std::string& text, const std::string& source) {
    values[name] = {text, source};
  };
  const std::string on =
      spec.default_value == "true" ? " (default: on; " + opposite + ": off)" : "";
  CLI::Option* option = app.add_flag_callback(
      spellings_of(spec), [=] { set("true", flag); }, spec.help + on);
  // Hidden, because it is listed with the positive form.
  app.add_flag_callback(spellings_of(spec, "no-"), [=] { set("false", opposite); })->group("");
  return option;
}

// Accepts "0 1" as one argument or as two.
CLI::Option* add_device_list(CLI::App& app, ConfigValues& values, const OptionSpec& spec) {
  const auto set = [&values, &spec](const std::vector<std::string>& words) {
    values[spec.name] = {base::join_text(words, " "), "--" + spec.name};
  };
  return app.add_option_function<std::vector<std::string>>(spellings_of(spec), set, spec.help)
      ->type_name(spec.metavar)
      ->expected(1, CLI::detail::expected_max_vector_size);
}

CLI::Option* add_value(CLI::App& app, ConfigValues& values, const OptionSpec& spec) {
  const bool may_stand_alone = spec.metavar.starts_with('[');
  const auto set = [&values, &spec, may_stand_alone](const std::string& value) {
    const bool alone = may_stand_alone && (value.empty() || value == "{}");
    values[spec.name] = {alone ? "on" : value, "--" + spec.name};
  };
  CLI::Option* option = app.add_option_function<std::string>(spellings_of(spec), set, spec.help)
                            ->type_name(spec.metavar)
                            ->default_str(spec.default_value);
  // Without a value it has the text of its default, which must differ from any given value.
  if (may_stand_alone) option->expected(0, 1)->default_str("");
  return option;
}

}  // namespace

void add_table_options(CLI::App& app, ConfigValues& values, const std::vector<std::string>& only) {
  for (const OptionSpec& spec : train_options()) {
    if (!only.empty() && std::ranges::find(only, spec.name) == only.end()) continue;
    const OptionSpec::Type type = spec.type();
    CLI::Option* option = type == OptionSpec::Type::kFlag      ? add_flag(app, values, spec)
                          : type == OptionSpec::Type::kDevices ? add_device_list(app, values, spec)
                                                               : add_value(app, values, spec);
    option->group(spec.group);
  }
}

void add_train_options(CLI::App& app, ConfigValues& values, std::string& config_file) {
  app.add_option("-c,--config", config_file,
                 "TOML file with options as keys; ${NAME} is an environment variable")
      ->type_name("FILE.toml")
      ->group("config");
  add_table_options(app, values);
}

void complete_values(ConfigValues& values, const std::string& config_file) {
  apply_environment(values);
  if (!config_file.empty()) apply_config_file(config_file, values);
  apply_defaults(values);
}

}  // namespace tools
