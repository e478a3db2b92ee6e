// Writes the ONNX file format (github.com/onnx/onnx, onnx.proto): a graph of operators, its
// weights, and text about it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace io {

// Operator set 17 (ONNX 1.12, June 2022) is the first with LayerNormalization, the newest operator
// that our layers need; every onnxruntime from 1.12 on reads it, and most other runtimes do.
inline constexpr std::int64_t kOnnxOpset = 17;
inline constexpr std::int64_t kOnnxIrVersion = 8;  // the file format of the same release

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::vector<std::int64_t>, std::string> value;
};

struct OnnxNode {
  std::string type, name;  // "Conv"; names are unique
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

// A size, or a name for a dimension that is chosen when the model runs.
using OnnxDimension = std::variant<std::int64_t, std::string>;

struct OnnxValue {  // an input or an output
  std::string name;
  DType type = DType::kF32;
  std::vector<OnnxDimension> shape;
};

struct OnnxModel {
  std::string name;  // name of the graph
  std::string producer, producer_version;
  std::vector<OnnxNode> nodes;        // each after the nodes whose outputs it reads
  std::vector<NamedArray> constants;  // weights and other constants; sections and devices are
                                      // ignored
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Writes atomically as save_checkpoint() and with its errors. The same model gives the same bytes.
// Throws DataError, without writing anything, for a text that is not UTF-8, data that do not match
// shape and type, and more than 2 GiB, which no reader of Protocol Buffers accepts. Returns the
// number of bytes written.
std::uint64_t save_onnx(const OnnxModel& model, const std::string& path);

}  // namespace io
