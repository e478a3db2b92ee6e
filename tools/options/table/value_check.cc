// Checks values with the parser of the option table.
#include "tools/options/table/value_check.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "io/base/text/text_parts.h"
#include "tools/options/table/value_text.h"

namespace tools {
namespace {

// `parse` returns nothing for any other text. The error is the end of a sentence that begins with
// the option's name.
template <class Parse, class ToText>
CLI::Validator checked(Parse parse, ToText to_text, const std::string& expected) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const auto value = parse(text);
        if (!value) return "is '" + text + "'; expected " + expected;
        text = to_text(*value);
        return "";
      },
      "");
}

std::string integer_text(std::int64_t value) { return std::to_string(value); }

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto parse = [=](const std::string& text) {
    const auto value = parse_integer(text);
    return value && *value >= least && *value <= most ? value : std::nullopt;
  };
  return checked(parse, integer_text,
                 "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

CLI::Validator number_from(double least, double most) {
  const auto parse = [=](const std::string& text) {
    const auto value = parse_real(text);
    return value && *value >= least && *value <= most ? value : std::nullopt;
  };
  const std::string low = base::shortest_text(least);
  return checked(parse, base::shortest_text,
                 most == std::numeric_limits<double>::max()
                     ? "a number of " + low + " or more"
                     : "a number from " + low + " to " + base::shortest_text(most));
}

CLI::Validator number_above_zero() {
  const auto parse = [](const std::string& text) {
    const auto value = parse_real(text);
    return value && *value > 0 ? value : std::nullopt;
  };
  return checked(parse, base::shortest_text, "a number above 0");
}

CLI::Validator some_text(const std::string& expected) {
  const auto parse = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  return checked(
      parse, [](const std::string& text) { return text; }, expected);
}

}  // namespace tools
