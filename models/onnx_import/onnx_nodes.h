// Goes through the nodes of an ONNX graph in their order.
#pragma once

#include "models/onnx_translation/onnx_translation.h"

namespace models {

// Translates all nodes to layers; returns the value that the model computes. Throws
// engine::ModelError that names all nodes without a translation.
OnnxActivation translate_nodes(OnnxTranslation& all);

}  // namespace models
