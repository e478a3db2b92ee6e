// The environment variables of this program, and warnings about names that are none of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

// Names that begin with ENGINE_ beside those of options: of the group, of libraries, of devices and
// of the tests.
std::span<const char* const> further_variables();

// A line for each of `names` that begins with ENGINE_ and means nothing, with the nearest that
// does; `more` are names of options beyond the table, "max-restarts". The tests' ENGINE_TEST_* are
// known.
std::vector<std::string> unknown_variables(std::span<const std::string> names,
                                           std::span<const std::string> more);

// The names in this process's environment.
std::vector<std::string> environment_names();

}  // namespace tools
