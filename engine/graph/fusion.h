// The first pass of a plan: selects the nodes that become steps and the nodes that are fused into
// them.
#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace engine {

struct FusedStep {
  NodeId node = -1;    // the node whose layer runs
  NodeId output = -1;  // the last fused node; `node` itself if there is none
  bool relu = false;
  NodeId residual = -1;  // read in addition to the inputs; -1: none
};

struct FusionResult {
  std::vector<FusedStep> steps;  // in the order of `node`; alias nodes have no step
  std::vector<NodeId> root;  // for each node: the node that owns its memory (itself unless it is an
                             // alias)
};

// Throws ModelError for a layer that is used by neither the logits nor the loss. If fuse == false,
// only aliases are resolved. The output of `watched` is not fused away; -1: there is no such node.
FusionResult fuse_steps(const Graph& graph, bool fuse, NodeId watched = -1);

}  // namespace engine
