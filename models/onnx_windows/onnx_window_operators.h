// The operators with windows along height and width, and norms of channels.
#pragma once

#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

std::vector<OnnxOperatorRow> onnx_convolutions();
std::vector<OnnxOperatorRow> onnx_norms();
std::vector<OnnxOperatorRow> onnx_padding();
std::vector<OnnxOperatorRow> onnx_pools();
std::vector<OnnxOperatorRow> onnx_resizing();

// A factor or a term for each channel of a group norm without parameters of its own is its weight
// or its bias. Returns false for other products and sums; `index` is the input with the numbers.
bool set_norm_parameter(OnnxOperator& op, std::size_t index);

}  // namespace models
