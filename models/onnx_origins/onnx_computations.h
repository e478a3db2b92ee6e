// Finds out how the exporter has computed a tensor of an ONNX file: as another order of a
// parameter, which is trained in its place, or with other numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "models/onnx_origins/onnx_origins.h"

namespace models {

enum class OnnxComputation : std::uint8_t {
  kNone,     // it is a parameter, or the file does not say
  kOrder,    // all numbers of a parameter, perhaps in another order
  kShared,   // likewise, by a tensor in the order of PyTorch: share_orders()
  kPart,     // some of them
  kNumbers,  // others, e.g. of a product with a mask: its training is not that of the parameter
};

// The exporter's changes to parameters.
struct OnnxExporterEffects {
  // Tensors of a parameter, e.g. a part of it, that another tensor is of as well.
  std::unordered_set<std::string> separated;
  // Layers of biases of zeros that it has left out, by their names in PyTorch.
  std::unordered_map<std::string, int> zero_biases;
  // Layers whose ones and zeros may be parameters, which the file does not say.
  std::unordered_set<std::string> unnamed_norms;
};

// `reader`: the node that reads the tensor.
OnnxComputation computation_of(const OnnxOrigins& origins, const io::ReadNode& reader,
                               const std::string& tensor);

// Whether PyTorch has no parameter where this node reads one: it is a norm without any, for which
// the exporter reads an equal tensor of another module. `index`: 1, the weight, or 2, the bias.
bool is_neutral_input(const io::ReadNode& node, std::size_t index);

}  // namespace models
