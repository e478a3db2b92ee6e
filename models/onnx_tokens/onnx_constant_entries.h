// Entries of constants that are chosen by indices or by their place, and types.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/onnx_translation/onnx_tensors.h"

namespace models {

std::map<std::string, OnnxFold> onnx_constant_entries();
std::vector<OnnxOperatorRow> onnx_token_operators();

}  // namespace models
