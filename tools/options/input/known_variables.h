// Lists the environment variables of this program, and warns about unknown names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

// Returns a line for each of `names` that begins with ENGINE_ and is unknown, with the nearest
// known one; `more` are names of options beyond the table, e.g. "max-restarts". The tests'
// ENGINE_TEST_* are known.
std::vector<std::string> unknown_variables(std::span<const std::string> names,
                                           std::span<const std::string> more);

// Returns the variables of options in this process's environment that are empty.
std::vector<std::string> empty_variables();

// Returns the names in this process's environment.
std::vector<std::string> environment_names();

}  // namespace tools
