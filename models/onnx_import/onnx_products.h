// Translations that files of operators share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx_import/onnx_operator.h"

namespace models {

// A layer that expands its inputs to one shape, as NumPy does.
struct OnnxElementwise {
  const char* kind;
  std::vector<std::pair<std::string, std::string>> options = {};
};

// A MatMul of two outputs of layers; one of attention becomes `self_attention`.
void translate_product(OnnxOperator& op);
// The node's output: the product of these.
void set_product(OnnxOperator& op, const OnnxActivation& a, const OnnxActivation& b);
// A factor or a term for each channel of a group norm without parameters of its own is its weight
// or its bias. Returns false for other products and sums; `index` is the input with the numbers.
bool set_norm_parameter(OnnxOperator& op, std::size_t index);
// A sum, difference, product or quotient of two values, by the kind of layer.
OnnxActivation combined(OnnxOperator& op, const char* kind, OnnxActivation a, OnnxActivation b);
// The same of any number of values, which the layer reads in this order.
OnnxActivation combined_all(OnnxOperator& op, const OnnxElementwise& layer,
                            std::vector<OnnxActivation> values);
// Rows of sums and products of any tensors, and of functions of their elements.
std::vector<OnnxOperatorRow> onnx_sums();
// A mean, sum, maximum ... over these axes.
void translate_reduction(OnnxOperator& op, const std::vector<std::int64_t>& axes);
// The mean over the height and width of an image, or of one pixel; keeps_axes: with extents of 1.
OnnxActivation global_average(OnnxOperator& op, OnnxActivation value, bool keeps_axes);

}  // namespace models
