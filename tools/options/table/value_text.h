// Parses option values as numbers, and converts them to the canonical spelling that files and
// digests use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_spec.h"

namespace tools {

inline constexpr std::int64_t kMaxCount = 1'000'000'000'000;  // for steps, samples and the like

// All parsers accept only the whole text: no blanks, no rest. Reals are finite.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
std::optional<bool> parse_flag(std::string_view text);  // true false, 1 0, yes no, on off

struct Interval {  // "2e": every 2 epochs; "500s" or "500": every 500 steps; "" or "0": never
  std::int64_t every = 0;
  bool epochs = false;
};
std::optional<Interval> parse_interval(std::string_view text);
// Parses "30,60"; "" is an empty list.
std::optional<std::vector<std::int64_t>> parse_integer_list(std::string_view text);

// Parses device numbers in the given order, separated by blanks or commas, with ranges "0-3";
// "none" and "" are an empty list. Each number once, at most 1024.
std::optional<std::vector<std::int64_t>> parse_device_numbers(std::string_view text);

std::string interval_text(Interval interval);  // e.g. "2e", "500s", "0"
std::string list_text(const std::vector<std::int64_t>& list);

// Returns the value in its canonical spelling ("0.010" -> "0.01", "2" epochs -> "2s", "yes" ->
// "true"); nullopt if it is not of the option's type. Unset ("") stays unset for every type.
std::optional<std::string> canonical_text(const OptionSpec& option, const std::string& value);
// Returns the expected form of the option's value: "an integer", "one of grad, params, none".
std::string expected_text(const OptionSpec& option);

}  // namespace tools
