// Arithmetic on constants while a file is read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/onnx_translation/onnx_tensors.h"

namespace models {

// A sum, product ... of integers, which may be extents that are no numbers: kOnnxUnknown for what
// cannot be computed.
std::int64_t computed_extent(const std::string& type, std::int64_t a, std::int64_t b);
// Throws OnnxUnsupported for a condition that depends on an unknown extent.
void expect_known_choice(const OnnxTensor& condition);

// The functions by operator.
std::map<std::string, OnnxFold> onnx_arithmetic();
std::map<std::string, OnnxFold> onnx_constant_movements();

// Computes the node if all of its inputs are computable constants; else returns false.
bool fold_node(OnnxOperator& op);

}  // namespace models
