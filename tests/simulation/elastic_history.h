// One seeded history of an elastic job: hosts, processes that come and go, what happens to them,
// and what is wrong with how it ends.
#pragma once

#include <cstdint>

#include "tests/simulation/history.h"

namespace simulation {

// The same seed gives the same history.
History run_elastic_history(std::uint64_t seed);

// The same world without its faults: the job is founded, and goes on without its last process if
// there are more than two. Whoever passes this point (ElasticWorld::points) dies, and is started
// again if it `comes_back`. Point 0: nobody.
struct Death {
  int point = 0;
  bool comes_back = false;
};
History run_with_death(std::uint64_t seed, const Death& death);

}  // namespace simulation
