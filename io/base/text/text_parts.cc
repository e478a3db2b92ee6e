// Implements the functions as plain loops over the text.
#include "io/base/text/text_parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace base {

std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join_text(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string count_text(std::int64_t count, std::string_view what) {
  return std::to_string(count).append(" ").append(what) + (count == 1 ? "" : "s");
}

std::string shape_text(const std::vector<std::int64_t>& extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(extents[i]);
  return text + "]";
}

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

std::string number_text(const char* format, double value) {
  char text[64];
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();  // without a sign
  const int length = std::snprintf(text, sizeof text, format, value);
  return {text, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof text - 1)};
}

std::string shortest_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace base
