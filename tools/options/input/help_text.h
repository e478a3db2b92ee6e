// Formats the text of --help: wrapped to the terminal, with the command's own options first.
#pragma once

#include <string>

#include "tools/options/input/command_shape.h"

namespace tools {

// `topic`: "" for the command's own options, the most common others and a list of the rest, "all",
// a group's name, or an option's ("lr" or "--lr"). Commands with few options show all of them at
// once. Lines have at most `width` columns. Throws UsageError for another topic, with the nearest.
std::string help_text(const CommandShape& command, const std::string& topic, int width);

// Returns the heading of a group of options, e.g. "Ranks and rendezvous" of "group"; an unknown
// group's name.
std::string heading_of(const std::string& group);

// Returns the width of the terminal at standard output, COLUMNS or 80, limited to a readable range.
int help_width();

}  // namespace tools
