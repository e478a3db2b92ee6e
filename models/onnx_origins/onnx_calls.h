// Reads the calls of PyTorch's functions that nodes of an ONNX file come from, as the exporter
// writes them with dynamo=True. They name the parameters even if the file has merged them with
// equal ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"

namespace models {

struct OnnxCall {
  std::string function;                // "aten.linear.default"; "": the file does not say
  std::vector<std::string> arguments;  // "%x", "%p_fc_weight", "[1, 1]"

  bool is_weighted_sum() const;  // a Linear layer or a convolution: f(x, weight, bias)
  bool is_batch_norm() const;
};

OnnxCall read_onnx_call(const std::string& text);

// Returns true if the exporter has folded a batch norm into this Gemm or convolution.
bool has_folded_norm(const io::ReadNode& node);

// The argument with the weight, or the bias, of a layer; 0: the function has none.
std::size_t weight_argument(const OnnxCall& call);
std::size_t bias_argument(const OnnxCall& call);

}  // namespace models
