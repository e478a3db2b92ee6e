// Converts CLI11's options to data.
#include "tools/options/input/command_shape.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string_view>

#include "io/base/text/text_parts.h"
#include "tools/options/table/option_table.h"

namespace tools {
namespace {

thread_local std::optional<CommandShape>* asked = nullptr;

// CLI11 appends the choices to a value's name: "TEXT:{text,json}".
std::string without_checks(const std::string& type) {
  return type.ends_with('}') ? type.substr(0, type.find(":{")) : type;
}

// Returns true for a part of "auto|cpu|cuda:N" that is literal.
bool is_word(const std::string& part) {
  const auto upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  return !part.empty() && part.find_first_of(":/.[]{}, ") == std::string::npos &&
         !std::all_of(part.begin(), part.end(), upper);
}

std::vector<std::string> choices_of(const std::string& type, std::string value) {
  const std::size_t set = type.find(":{");
  if (set != std::string::npos && type.ends_with('}'))
    return base::split_text(type.substr(set + 2, type.size() - set - 3), ',');
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos || value.find('[') != std::string::npos) return words;
  for (const std::string& part : base::split_text(value, '|'))
    if (is_word(part)) words.push_back(part);
  return words;
}

// CLI11's names of types are less informative than the choices, or than one letter.
std::string value_name(const std::string& type, const std::vector<std::string>& choices) {
  if (type == "TEXT" && !choices.empty()) return base::join_text(choices, "|");
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "F" : type;
}

// Earlier names of options are accepted, but not shown.
bool is_earlier_name(const std::string& name) {
  const OptionSpec* option = find_option(name);
  return option != nullptr && option->alias == name;
}

OptionShape shape_of_option(const CLI::Option& option) {
  OptionShape shape;
  shape.positional = option.get_positional() && option.get_lnames().empty();
  shape.required = option.get_required();
  shape.help = option.get_description();
  shape.group = option.get_group();
  shape.takes_many = option.get_items_expected_max() > 1 ||
                     option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  const std::string type = option.get_type_name(), plain = without_checks(type);
  if (shape.positional) {
    shape.names = {option.get_name(true)};
    shape.choices = choices_of(type, plain);
    return shape;
  }
  for (const std::string& name : option.get_snames()) shape.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    if (!is_earlier_name(name)) shape.names.push_back("--" + name);
  if (option.get_items_expected_max() == 0) {  // a flag may be repeated without effect
    shape.takes_many = false;
    return shape;
  }
  shape.choices = choices_of(type, plain);
  shape.value = value_name(plain, shape.choices);
  shape.value_is_optional = option.get_items_expected_min() == 0;
  shape.default_value = option.get_default_str();
  return shape;
}

// Joins "--no-x" to "--x", because help shows only the joined name.
bool joined_positive(const CLI::Option& option, std::vector<OptionShape>& options) {
  if (option.get_lnames().empty() || !option.get_lnames().front().starts_with("no-")) return false;
  const std::string positive = "--" + option.get_lnames().front().substr(3);
  for (OptionShape& shape : options)
    if (std::ranges::find(shape.names, positive) != shape.names.end()) {
      shape.names.push_back("--" + option.get_lnames().front());
      return true;
    }
  return false;
}

}  // namespace

CommandShape shape_of(const CLI::App& app) {
  CommandShape shape{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options()) {
    const bool hidden = option->get_group().empty();
    if (hidden && joined_positive(*option, shape.options)) continue;
    if (!hidden) shape.options.push_back(shape_of_option(*option));
  }
  return shape;
}

bool capture_shape(const CLI::App& app) {
  if (asked == nullptr) return false;
  *asked = shape_of(app);
  return true;
}

CommandShape shape_of(const std::function<int(const std::vector<std::string>&)>& run,
                      const std::vector<std::string>& arguments) {
  std::optional<CommandShape> shape;
  asked = &shape;
  try {
    run(arguments);
  } catch (...) {
    asked = nullptr;
    throw;
  }
  asked = nullptr;
  if (!shape) throw std::logic_error("a command has ended before it called parse()");
  return *shape;
}

}  // namespace tools
