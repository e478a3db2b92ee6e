// Separates modules of equal parameters whose calls PyTorch's exporter has merged.
#pragma once

#include <optional>

#include "models/onnx_origins/onnx_origins.h"

namespace models {

// With dynamo=True, the exporter computes once what several modules compute alike. If their
// parameters are equal, as those of new decoder layers are, only one of the modules is left.
// Returns the graph with the nodes of the others; nothing if the file has them all.
std::optional<io::OnnxGraph> with_separate_modules(const io::OnnxGraph& graph);

}  // namespace models
