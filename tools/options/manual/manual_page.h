// Makes manual pages in roff's man macros.
#pragma once

#include <string>

#include "tools/options/manual/program_shape.h"

namespace tools {

// Returns the page of a command in section 1, "engine-bench-step". `date` is YYYY-MM-DD.
std::string manual_page(const ProgramShape& program, const ProgramCommand& command,
                        const std::string& date);
// Returns the page "engine": commands, environment, exit status.
std::string overview_page(const ProgramShape& program, const std::string& date);

// Converts "bench step" to "engine-bench-step".
std::string page_name(const std::string& command);

}  // namespace tools
