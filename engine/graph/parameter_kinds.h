// Which parameters of a model are matrices between its layers: what some optimizers treat apart.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace engine {

// The names of parameters of two or more dimensions, in model order, without those of embeddings,
// of first layers (reached from an input without passing another layer with such a parameter) and
// of last layers (from which the logits are reached so). A layer that is tied to a first or last
// one counts with it.
std::vector<std::string> hidden_matrices(const Graph& graph);

}  // namespace engine
