// Functions that the translations of operators with weights share.
#pragma once

#include <string>

#include "models/onnx_import/onnx_operator.h"

namespace models {

inline std::string bool_text(bool value) { return value ? "true" : "false"; }
inline const std::string& initializer_name(const OnnxConstant& constant) {
  return constant.tensor->name;
}

// Adds a layer with a weight and perhaps a bias. A weight that an earlier layer has is shared, as
// in PyTorch, with its bias. Returns the layer's index.
int add_weighted(OnnxOperator& op, OnnxListedLayer layer);

void translate_conv(OnnxOperator& op);
void translate_conv_transpose(OnnxOperator& op);

}  // namespace models
