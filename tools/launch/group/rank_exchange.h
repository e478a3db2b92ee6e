// Small collective helpers of reports: texts of any length, and a schedule of disjoint pairs
// (round-robin tournament).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/communicator.h"

namespace tools {

// Returns the texts of all ranks, by rank. Collective.
std::vector<std::string> gather_texts(backends::Communicator& communicator, const std::string& own);

// Returns every pair (a < b) of `ranks` ranks once, in rounds of pairs that share no rank: the
// circle method of tournaments.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks);

}  // namespace tools
