// Finds the parameters that optimizers treat differently, e.g. matrices between a model's layers.
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

// All parameters of normalization layers, the biases of all layers, and embeddings of tokens and
// positions. A parameter may be of several kinds.
enum class ParameterKind { kNorm, kBias, kEmbedding };
// Returns their names, in model order. A parameter that an embedding shares is one.
std::vector<std::string> parameters_of(const Graph& graph, ParameterKind kind);

}  // namespace engine
