// Translates the layers of functions of single elements to ONNX's operators.
#pragma once

#include <string>

#include "models/onnx/onnx_layer.h"

namespace models {

std::string add_activation(OnnxLayer& layer);  // `activation` and `scale_shift`

}  // namespace models
