// Splits, joins and trims text, and formats numbers with a printf() format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace base {

// Returns one part more than there are separators; parts may be empty.
std::vector<std::string> split_text(std::string_view text, char separator);

std::string join_text(const std::vector<std::string>& parts, std::string_view separator = ", ");

// Returns a field of a CSV file, quoted if necessary (RFC 4180).
std::string csv_field(const std::string& text);

// Returns the text without blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

// `format` has one conversion, of a double: "%.1f s".
[[gnu::format(printf, 1, 0)]] std::string number_text(const char* format, double value);

}  // namespace base
