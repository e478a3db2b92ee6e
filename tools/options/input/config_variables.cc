// Replaces ${NAME}.
#include "tools/options/input/config_variables.h"

#include <algorithm>
#include <cstdlib>

namespace tools {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

}  // namespace

bool has_variables(std::string_view text) {
  return text.find("${") != std::string_view::npos || text.find("$$") != std::string_view::npos;
}

std::string expand_variables(std::string_view text, std::string& fault) {
  std::string result;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {
      result += '$';
      text.remove_prefix(2);
    } else if (text.starts_with("${")) {
      const std::size_t end = text.find('}');
      const std::string name(text.substr(2, end == std::string_view::npos ? end : end - 2));
      const char* value = std::getenv(name.c_str());
      if (end == std::string_view::npos)
        fault = "'${" + name + "' has no closing brace (a literal $ before { is written $$)";
      else if (!is_name(name))
        fault = "'${" + name + "}' names no variable (a literal $ before { is written $$)";
      else if (value == nullptr || *value == '\0')
        fault =
            "the environment variable " + name + " is " + (value == nullptr ? "not set" : "empty");
      else
        result += value;
      if (end == std::string_view::npos) return result;
      text.remove_prefix(end + 1);
    } else if (!text.empty()) {
      result += '$';
      text.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace tools
