// Translates pooling layers to ONNX's operators.
#pragma once

#include <string>

namespace models {

struct OnnxLayer;

// Add the layer's operators; return the value of its output.
std::string add_max_pool2d(OnnxLayer& layer);
std::string add_average_pool2d(OnnxLayer& layer);
std::string add_global_average_pool(OnnxLayer& layer);

}  // namespace models
