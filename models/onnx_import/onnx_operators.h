// The operators of ONNX by name, and what their files share.
#pragma once

#include <string>
#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

// Returns null for an unknown type.
OnnxBuild find_onnx_operator(const std::string& type);

// The rows of each file.
std::vector<OnnxOperatorRow> onnx_weight_operators();   // layers with parameters
std::vector<OnnxOperatorRow> onnx_activations();        // activation functions and products
std::vector<OnnxOperatorRow> onnx_plain_operators();    // other layers without parameters
std::vector<OnnxOperatorRow> onnx_shape_operators();    // shapes, and constants
std::vector<OnnxOperatorRow> onnx_general_operators();  // products and means of any tensors
std::vector<OnnxOperatorRow> onnx_sums();               // sums, and functions of elements
std::vector<OnnxOperatorRow> onnx_movements();          // numbers in another order
std::vector<OnnxOperatorRow> onnx_einsum();
std::vector<OnnxOperatorRow> onnx_sequences();
std::vector<OnnxOperatorRow> onnx_attention_operators();

// x * sigmoid(x) as one layer; returns false for other products.
bool set_gated(OnnxOperator& op);
// A MatMul of two outputs of layers; one of attention becomes `self_attention`.
void translate_product(OnnxOperator& op);
// The node's output: the product of these.
void set_product(OnnxOperator& op, const OnnxActivation& a, const OnnxActivation& b);

}  // namespace models
