// Translates each kind of layer to ONNX's operators, with its meaning in inference.
#pragma once

#include <span>
#include <string>

#include "models/onnx_export/onnx_layer.h"

namespace models {

// Adds the layer's operators; returns the value of its output. Throws engine::ModelError "layer 'x'
// (kind): ONNX ..." for a kind without a translation.
std::string add_onnx_layer(OnnxLayer& layer);

struct OnnxKind {
  const char* kind;
  std::string (*add)(OnnxLayer& layer);
};

// The kinds that each file translates.
std::span<const OnnxKind> onnx_general_kinds();  // layers for tensors of any rank
std::span<const OnnxKind> onnx_pooling_kinds();
std::span<const OnnxKind> onnx_sequence_kinds();  // layers that know positions or heads
std::span<const OnnxKind> onnx_function_kinds();  // functions of single elements

}  // namespace models
