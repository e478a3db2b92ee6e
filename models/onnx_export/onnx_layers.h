// Translates each kind of layer to ONNX's operators, with its meaning in inference.
#pragma once

#include <string>

#include "models/onnx_export/onnx_layer.h"

namespace models {

// Adds the layer's operators; returns the value of its output. Throws engine::ModelError "layer 'x'
// (kind): ONNX ..." for a kind without a translation.
std::string add_onnx_layer(OnnxLayer& layer);

// The layers for tensors of any rank.
std::string add_reshape(OnnxLayer& layer);
std::string add_permute(OnnxLayer& layer);
std::string add_slice(OnnxLayer& layer);
std::string add_concat(OnnxLayer& layer);
std::string add_reduce(OnnxLayer& layer);
std::string add_gather(OnnxLayer& layer);
std::string add_binary(OnnxLayer& layer, const char* type);
std::string add_compare(OnnxLayer& layer);
std::string add_where(OnnxLayer& layer);
std::string add_parameter(OnnxLayer& layer);
std::string add_constant(OnnxLayer& layer);

}  // namespace models
