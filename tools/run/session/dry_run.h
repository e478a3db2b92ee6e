// Describes a training without running it: its model by layer, and its memory.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "tools/options/table/option_table.h"
#include "tools/report/text/session_facts.h"
#include "tools/run/choices/memory_plan.h"

namespace tools {

// Returns one line per layer: name, kind, shape of a sample's output, own parameters, operations;
// and their sums.
std::string model_table(const engine::Graph& graph);

struct RankMemory {
  std::string host, device;
  MemoryNeed need;
  MemoryFacts limited = {};  // without a limit if --memory gives none
  std::uint64_t in_use = 0;  // bytes of the device that were not free before; 0 on a CPU
};
// Returns one line per rank, also with what it recomputes if a rank has a limit.
std::string memory_table(const std::vector<RankMemory>& ranks);

// Returns every option that has an effect, with its value and its source.
std::string option_table_text(const ConfigValues& values);

}  // namespace tools
