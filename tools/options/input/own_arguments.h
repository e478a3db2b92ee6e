// Separates a command's own options from the command line of a program that follows them.
#pragma once

#include <cstddef>

#include "tools/options/input/command_line.h"

namespace CLI {
class App;
}

namespace tools {

// Returns the number of leading arguments that are options of `app` and their values: those before
// "--", or before the first word that is neither. A typographic dash from a word processor counts
// as an option, which parse() rejects.
std::size_t count_own_arguments(const CLI::App& app, const Arguments& arguments);

}  // namespace tools
