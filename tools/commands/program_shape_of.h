// Describes the whole program as data, for manual pages and completion.
#pragma once

#include "tools/options/manual/program_shape.h"

namespace tools {

// Returns all commands that users need. Does not run any command.
ProgramShape shape_of_program();

}  // namespace tools
