// Looks up each option's number of values in the command's parser.
#include "tools/options/input/own_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace tools {

std::size_t count_own_arguments(const CLI::App& app, const Arguments& arguments) {
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--") break;
    if (!a.starts_with("-") && !a.starts_with("\xe2\x80") && !a.starts_with("\u2212")) break;
    const std::string name = hyphenated(a);
    if (name.find('=') != std::string::npos || (a.size() > 2 && a[1] != '-')) continue;
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return std::min(i, arguments.size());
}

}  // namespace tools
