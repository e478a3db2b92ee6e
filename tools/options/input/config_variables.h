// Variables of the environment in the values of a configuration file.
#pragma once

#include <string>
#include <string_view>

namespace tools {

// Whether the text refers to a variable, ${NAME}, or has the escape $$.
bool has_variables(std::string_view text);

// `text` with each ${NAME} replaced by the environment's value, and each $$ by one $; any other $
// stays. `fault` says what is wrong, else it is left alone: a variable that is unset or empty, a
// name that is none, a brace that is not closed.
std::string expand_variables(std::string_view text, std::string& fault);

}  // namespace tools
