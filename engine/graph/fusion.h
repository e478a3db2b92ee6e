// The first pass of a plan: which nodes become steps and which are folded into one.
#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace engine {

struct FusedStep {
  NodeId node = -1;    // whose layer runs
  NodeId output = -1;  // the last node folded in; `node` itself when none is
  bool relu = false;
  NodeId residual = -1;  // read besides the inputs; -1: none
};

struct FusionResult {
  std::vector<FusedStep> steps;  // in the order of `node`; alias nodes have none
  std::vector<NodeId> root;  // per node: the node whose memory it shows (itself unless an alias)
};

// Throws ModelError for a layer that feeds neither the logits nor the loss. With fuse == false only
// aliases are resolved. The output of `watched` is not folded away; -1: of no node.
FusionResult fuse_steps(const Graph& graph, bool fuse, NodeId watched = -1);

}  // namespace engine
