// One seeded history of an elastic job: hosts, processes that come and go, what happens to them,
// and what is wrong with how it ends.
#pragma once

#include <cstdint>

#include "tests/simulation/history.h"

namespace simulation {

// The same seed gives the same history.
History run_elastic_history(std::uint64_t seed);

}  // namespace simulation
