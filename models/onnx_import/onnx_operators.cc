// The table of operators.
#include "models/onnx_import/onnx_operators.h"

#include <map>

#include "models/onnx_tokens/onnx_constant_entries.h"
#include "models/onnx_windows/onnx_window_operators.h"

namespace models {
namespace {

const std::map<std::string, OnnxBuild>& onnx_table() {
  static const std::map<std::string, OnnxBuild> table = [] {
    std::map<std::string, OnnxBuild> all;
    for (const auto& rows :
         {onnx_weight_operators(), onnx_activations(), onnx_plain_operators(),
          onnx_shape_operators(), onnx_general_operators(), onnx_movements(), onnx_convolutions(),
          onnx_norms(), onnx_pools(), onnx_resizing(), onnx_padding(), onnx_token_operators(),
          onnx_sequences(), onnx_einsum(), onnx_attention_operators()})
      for (const OnnxOperatorRow& row : rows) all.emplace(row.type, row.build);
    return all;
  }();
  return table;
}

}  // namespace

OnnxBuild find_onnx_operator(const std::string& type) {
  const auto found = onnx_table().find(type);
  return found == onnx_table().end() ? nullptr : found->second;
}

}  // namespace models
