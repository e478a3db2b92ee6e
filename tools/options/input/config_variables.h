// Expands environment variables in the values of a configuration file.
#pragma once

#include <string>
#include <string_view>

namespace tools {

// Returns true if the text refers to a variable, ${NAME}, or has the escape $$.
bool has_variables(std::string_view text);

// Returns `text` with each ${NAME} replaced by the environment's value, and each $$ by one $; any
// other $ stays. Sets `fault` on an error, else does not change it: a variable that is unset or
// empty, an invalid name, a brace that is not closed.
std::string expand_variables(std::string_view text, std::string& fault);

}  // namespace tools
