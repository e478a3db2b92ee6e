// Finds the layers whose outputs are the classes.
#pragma once

#include <string>
#include <vector>

#include "models/onnx_translation/onnx_translation.h"

namespace models {

// Lets the layers whose outputs are the classes have as many as the data. Returns their names, and
// those of norms and parameters with a number for each class; none if one of them is shared or
// cannot be found, and nothing is replaced.
std::vector<std::string> open_heads(OnnxLayerList& layers, const std::vector<bool>& needed,
                                    const OnnxActivation& output);

}  // namespace models
