// Prints what CPUs and CUDA devices do with options, from the rows of the options.
#pragma once

#include <string>

namespace tools {

// Returns a Markdown table: one row for each value that one kind of device rejects, or with which
// it differs. All other options and values work on both.
std::string device_table();

}  // namespace tools
