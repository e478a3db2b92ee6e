// Splits, joins and trims text, and formats numbers with a printf() format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace base {

// Returns one part more than there are separators; parts may be empty.
std::vector<std::string> split_text(std::string_view text, char separator);

std::string join_text(const std::vector<std::string>& parts, std::string_view separator = ", ");

// Returns e.g. "1 rank", "2 ranks".
std::string count_text(std::int64_t count, std::string_view what);
// Returns e.g. "[32, 3, 5]".
std::string shape_text(const std::vector<std::int64_t>& extents);
// Returns the name with - for each _.
std::string with_dashes(std::string_view name);

// Returns a field of a CSV file, quoted if necessary (RFC 4180).
std::string csv_field(const std::string& text);

// Returns the text without blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

// `format` has one conversion, of a double: "%.1f s".
[[gnu::format(printf, 1, 0)]] std::string number_text(const char* format, double value);

// Returns the shortest decimal text that reads back as the same double. REQUIRES: finite.
std::string shortest_text(double value);

}  // namespace base
