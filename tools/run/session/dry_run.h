// What a training would be made of: its model layer by layer, and what it needs of memory.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "tools/options/table/option_table.h"
#include "tools/run/choices/memory_plan.h"

namespace tools {

// Floating-point operations of one sample's forward pass through this node: those of the products
// of convolutions, dense layers and causal attention (half of each product of all positions), where
// a multiplication and an addition are two; 0 for other kinds, which are bound by memory.
double forward_flops(const engine::Graph& graph, engine::NodeId node);

// A line a layer: name, kind, shape of a sample's output, parameters of its own, operations; and
// their sums.
std::string model_table(const engine::Graph& graph);

struct RankMemory {
  std::string host, device;
  MemoryNeed need;
};
std::string memory_table(const std::vector<RankMemory>& ranks);

// Every option that plays a part, with its value and where that came from.
std::string option_table_text(const ConfigValues& values);

}  // namespace tools
