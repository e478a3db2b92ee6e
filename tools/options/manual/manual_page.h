// Manual pages in the language man of roff.
#pragma once

#include <string>

#include "tools/options/manual/program_shape.h"

namespace tools {

// Section 1's page of a command, "engine-bench-step". `date` is YYYY-MM-DD.
std::string manual_page(const ProgramShape& program, const ProgramCommand& command,
                        const std::string& date);
// The page "engine": commands, environment, exit status.
std::string overview_page(const ProgramShape& program, const std::string& date);

// "bench step" -> "engine-bench-step"
std::string page_name(const std::string& command);

}  // namespace tools
