// Finds the parameters that are matrices between a model's layers, which some optimizers treat
// differently.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace engine {

// Returns the names of parameters of two or more dimensions, in model order, except those of
// embeddings, of first layers (reachable from an input without passing another layer with such a
// parameter) and of last layers (from which the logits are reachable in this way). A layer that is
// tied to a first or last one is treated like it.
std::vector<std::string> hidden_matrices(const Graph& graph);

}  // namespace engine
