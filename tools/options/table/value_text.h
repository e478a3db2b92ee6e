// Option values as text: reading them into numbers, and into the one spelling that files and
// digests use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_table.h"

namespace tools {

inline constexpr std::int64_t kMaxCount = 1'000'000'000'000;  // of steps, samples and the like

// All of them take the whole text or nothing: no blanks, no rest. Reals are finite.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
std::optional<bool> parse_flag(std::string_view text);  // true false, 1 0, yes no, on off

struct Interval {  // "2e" = every 2 epochs, "500s" or "500" = every 500 steps, "" or "0" = never
  std::int64_t every = 0;
  bool epochs = false;
};
std::optional<Interval> parse_interval(std::string_view text);
std::optional<std::vector<std::int64_t>> parse_integer_list(
    std::string_view text);  // "30,60"; "" = empty

// Numbers of devices in the order given, with blanks or commas between them, ranges "0-3"; "none"
// and "" = empty. Each once, at most 1024.
std::optional<std::vector<std::int64_t>> parse_device_numbers(std::string_view text);

std::string interval_text(Interval interval);  // "2e", "500s", "0"
std::string list_text(const std::vector<std::int64_t>& list);

// The value in its one canonical spelling ("0.010" -> "0.01", "2" epochs -> "2s", "yes" -> "true");
// nullopt when it is not of the option's type. Unset ("") stays unset for every type.
std::optional<std::string> canonical_text(const OptionSpec& option, const std::string& value);
// What a value of the option must look like: "an integer", "one of grad, params, none".
std::string expected_text(const OptionSpec& option);

}  // namespace tools
