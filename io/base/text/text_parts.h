// Text made of parts: split, joined, without blanks around it, numbers by a format of printf().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace base {

// One part more than there are separators; parts may be empty.
std::vector<std::string> split_text(std::string_view text, char separator);

std::string join_text(const std::vector<std::string>& parts, std::string_view separator = ", ");

// As a field of a CSV file: in quotes where it must be (RFC 4180).
std::string csv_field(const std::string& text);

// Without the blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

// `format` has one conversion, of a double: "%.1f s".
[[gnu::format(printf, 1, 0)]] std::string number_text(const char* format, double value);

}  // namespace base
