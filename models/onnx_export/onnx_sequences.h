// Translates the layers of sequences that know positions or heads, RMS normalization, and functions
// of single elements to ONNX's operators.
#pragma once

#include <string>

#include "models/onnx_export/onnx_layer.h"

namespace models {

std::string add_rms_norm(OnnxLayer& layer);
std::string add_head_rms_norm(OnnxLayer& layer);
std::string add_position_embedding(OnnxLayer& layer);
std::string add_rotary(OnnxLayer& layer);
std::string add_attention(OnnxLayer& layer);
std::string add_activation(OnnxLayer& layer);  // `activation` and `scale_shift`

}  // namespace models
