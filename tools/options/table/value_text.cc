// Implements the parsers and the canonical texts of option values.
#include "tools/options/table/value_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "io/base/text/real_number.h"
#include "io/base/text/text_parts.h"
#include "io/base/text/utf8.h"

namespace tools {
namespace {

std::from_chars_result read(const char* first, const char* last, double& value) {
  return base::real_from_chars(first, last, value);
}
template <typename Whole>
std::from_chars_result read(const char* first, const char* last, Whole& value) {
  return std::from_chars(first, last, value);
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = read(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const char* word : {"true", "1", "yes", "on"})
    if (text == word) return true;
  for (const char* word : {"false", "0", "no", "off"})
    if (text == word) return false;
  return std::nullopt;
}

std::optional<Interval> parse_interval(std::string_view text) {
  if (text.empty()) return Interval{};
  Interval interval;
  interval.epochs = text.back() == 'e';
  if (interval.epochs || text.back() == 's') text.remove_suffix(1);
  const auto every = parse_integer(text);
  if (!every || *every < 0) return std::nullopt;
  interval.every = *every;
  return interval;
}

std::optional<std::vector<std::int64_t>> parse_integer_list(std::string_view text) {
  std::vector<std::int64_t> list;
  if (text.empty()) return list;
  for (const std::string& part : base::split_text(text, ',')) {
    const auto value = parse_integer(part);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<std::vector<std::int64_t>> parse_device_numbers(std::string_view text) {
  constexpr std::int64_t kMaxDevices = 1024;
  std::vector<std::int64_t> numbers;
  if (text.empty() || text == "none") return numbers;
  const auto add = [&](const std::string& part) {
    const std::size_t dash = part.find('-');
    const auto first = parse_integer(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_integer(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxDevices) return false;
    for (std::int64_t n = *first; n <= *last; ++n) {
      if (std::find(numbers.begin(), numbers.end(), n) != numbers.end()) return false;
      numbers.push_back(n);
    }
    return true;
  };
  for (const std::string& group : base::split_text(text, ',')) {
    const std::size_t before = numbers.size();
    for (const std::string& part : base::split_text(group, ' '))
      if (!part.empty() && !add(part)) return std::nullopt;
    if (numbers.size() == before) return std::nullopt;  // an empty item between two commas
  }
  return numbers;
}

std::string interval_text(Interval interval) {
  return interval.every == 0 ? "0" : std::to_string(interval.every) + (interval.epochs ? "e" : "s");
}

std::string list_text(const std::vector<std::int64_t>& list) {
  std::string text;
  for (const std::int64_t value : list) {
    if (!text.empty()) text += ',';
    text += std::to_string(value);
  }
  return text;
}

std::optional<std::string> canonical_text(const OptionSpec& option, const std::string& value) {
  if (value.empty()) return value;
  const auto convert = [](const auto& parsed, auto&& to_text) {
    return parsed ? std::optional<std::string>(to_text(*parsed)) : std::nullopt;
  };
  switch (option.type()) {
    case OptionSpec::Type::kString:
      return base::is_utf8(value) ? std::optional(value) : std::nullopt;
    case OptionSpec::Type::kInteger:
      return convert(parse_integer(value), [](std::int64_t v) { return std::to_string(v); });
    case OptionSpec::Type::kReal:
      return convert(parse_real(value), base::shortest_text);
    case OptionSpec::Type::kFlag:
      return convert(parse_flag(value), [](bool v) { return std::string(v ? "true" : "false"); });
    case OptionSpec::Type::kInterval:
      return convert(parse_interval(value), interval_text);
    case OptionSpec::Type::kList:
      return convert(parse_integer_list(value), list_text);
    case OptionSpec::Type::kDevices:
      return convert(parse_device_numbers(value),
                     [](const auto& list) { return list.empty() ? "none" : list_text(list); });
    case OptionSpec::Type::kChoice:
      break;
  }
  return std::ranges::count(option.field.choices, value) > 0 ? std::optional(value) : std::nullopt;
}

std::string expected_text(const OptionSpec& option) {
  switch (option.type()) {
    case OptionSpec::Type::kString:
      return "UTF-8 text";
    case OptionSpec::Type::kInteger:
      return "an integer";
    case OptionSpec::Type::kReal:
      return "a number";
    case OptionSpec::Type::kFlag:
      return "true or false";
    case OptionSpec::Type::kInterval:
      return "a count of steps (500 or 500s) or epochs (2e)";
    case OptionSpec::Type::kList:
      return "comma-separated integers (30,60)";
    case OptionSpec::Type::kDevices:
      return "distinct device numbers, as '0 1', '0,1' or '0-3', or none";
    case OptionSpec::Type::kChoice:
      break;
  }
  return "one of " + base::join_text(option.field.choices);
}

}  // namespace tools
