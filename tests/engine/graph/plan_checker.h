// Walks through a plan as an executor would, remembering what each 64 bytes of the arena hold, and
// finds every read of memory that something else has been written over.
#pragma once

#include <string>

#include "engine/graph/plan.h"

namespace test_support {

// "" when the plan is sound, else the first thing that is wrong.
std::string check_plan(const engine::Plan& plan);

}  // namespace test_support
