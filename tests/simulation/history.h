// One seeded history: a group of ranks, what happens to them, how they end, and what is wrong with
// that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace simulation {

struct History {
  std::string schedule;             // "4 ranks; 3.2 s: rank 2 is paused for 8.0 s"; for messages
  std::vector<std::string> wrong;   // "": nothing
  std::map<std::string, int> ends;  // "finished": 4
  int faults = 0;
  int points = 0;      // at which a process might have died
  double seconds = 0;  // of virtual time
};

// The same seed gives the same history.
History run_history(std::uint64_t seed);

}  // namespace simulation
