// The whole program as data, for manual pages and completion.
#pragma once

#include "tools/options/manual/program_shape.h"

namespace tools {

// All commands that users need. No command does anything.
ProgramShape shape_of_program();

}  // namespace tools
