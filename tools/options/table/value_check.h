// Checks values of a command's own options. Numbers are read as in engine train: all of the text,
// in decimal.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace CLI {
class Validator;
}

namespace tools {

// For CLI::Option::transform(), which then has the number in canonical spelling ("010" is 10; CLI11
// would read an octal 8).
CLI::Validator whole_number(std::int64_t least,
                            std::int64_t most = std::numeric_limits<int>::max());
CLI::Validator number_from(double least, double most = std::numeric_limits<double>::max());
CLI::Validator number_above_zero();

CLI::Validator some_text(const std::string& expected);  // accepts any nonempty text

}  // namespace tools
