// One node of an ONNX graph during its translation, with typed access to what it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/onnx_translation/onnx_translation.h"

namespace models {

// A node that the list of layers cannot express. The text says why and what would do instead.
class OnnxUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// A node that reads the output of one without a translation, which has been reported.
struct OnnxDependent {};

// The attributes of a node. All functions throw OnnxUnsupported for one of another kind.
class OnnxAttributes {
 public:
  explicit OnnxAttributes(const io::ReadNode& node) : node_(node) {}

  const io::ReadNode& node() const { return node_; }
  const io::ReadAttribute* attribute(const std::string& name) const;  // null: it is not there
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  double real(const std::string& name, double otherwise) const;  // the shortest decimal number
  std::string text(const std::string& name, const std::string& otherwise) const;
  std::optional<std::vector<std::int64_t>> integers(const std::string& name) const;

 private:
  const io::ReadNode& node_;
};

class OnnxOperator : public OnnxAttributes {
 public:
  OnnxOperator(OnnxTranslation& all, const io::ReadNode& node) : OnnxAttributes(node), all_(all) {}

  OnnxTranslation& all() { return all_; }

  // Inputs. All throw OnnxDependent, and OnnxUnsupported for an input of another kind.
  bool has_input(std::size_t index) const;
  const OnnxKnown& input(std::size_t index) const;
  bool is_activation(std::size_t index) const;
  void refuse_tokens(std::size_t index) const;
  // A layer's output; rows of numbers, [batch, columns], become vectors.
  OnnxActivation activation(std::size_t index);
  OnnxActivation image(std::size_t index);  // [batch, c, h, w] with the engine's layout [h, w, c]
  // A constant, with the name of the parameter that PyTorch reads there.
  OnnxConstant constant(std::size_t index) const;
  // A constant that has this shape.
  OnnxConstant constant(std::size_t index, const std::vector<std::int64_t>& shape) const;
  // A constant that the translation may compute with: not a parameter.
  bool is_computable(std::size_t index) const;
  OnnxTensor tensor(std::size_t index) const;                  // any constant, with its numbers
  std::vector<std::int64_t> numbers(std::size_t index) const;  // a short list of integers
  double number(std::size_t index) const;                      // a constant of one element

  // Adds a layer without parameters, which reads these layers; returns its index.
  int add_layer(const std::string& kind, const std::vector<int>& inputs,
                std::vector<std::pair<std::string, std::string>> options = {});
  // The node's first output.
  void set(OnnxKnown known) { all_.values.set(node().outputs.at(0), std::move(known)); }

 private:
  OnnxTranslation& all_;
};

// A layer's output, in the engine's order of images if it has 4 dimensions.
OnnxActivation image_or_vector(OnnxOperator& op, std::size_t index);
// PyTorch's attributes are doubles, stored as floats: 9.99999975e-06 stands for 1e-05.
double shortest_decimal(float value);
std::vector<std::int64_t> shape_of(const OnnxConstant& constant);
// Returns true if the node alone reads the layer that the input is the output of, so that the layer
// may change: no other node reads it, nor its numbers in another shape or order, or a part of them.
bool is_only_reader(OnnxOperator& op, std::size_t index);
// Whether the input is a constant that is not trained, and all of its numbers are this one.
bool is_all(OnnxOperator& op, std::size_t index, double number);
// Returns the activation as a vector per sample, by a flatten layer if it needs one.
OnnxActivation flattened(OnnxOperator& op, const OnnxActivation& from);
// Returns the number of elements of a sample, kOnnxUnknown if that is not known.
std::int64_t elements_of(const OnnxActivation& value);

inline std::string bool_text(bool value) { return value ? "true" : "false"; }
// The constant, with the name of the parameter that PyTorch reads where the node reads it as this
// input.
OnnxConstant named_constant(const OnnxTranslation& all, const io::ReadNode& node, std::size_t input,
                            OnnxConstant constant);
// The inputs of Slice, of equal lengths. Throws OnnxUnsupported if they are not.
struct OnnxSlice {
  std::vector<std::int64_t> begins, ends, axes, steps;
};
OnnxSlice slice_numbers(OnnxOperator& op);

// The function that translates the nodes of a type.
using OnnxBuild = void (*)(OnnxOperator& op);
struct OnnxOperatorRow {
  const char* type;
  OnnxBuild build;
};

}  // namespace models
