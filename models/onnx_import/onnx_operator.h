// One node of an ONNX graph during its translation, with typed access to what it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/onnx_import/onnx_translation.h"

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
// Whether the node alone reads the layer that the input is the output of, so that the layer may
// change: no other node reads it, nor its numbers in another shape or order, or a part of them.
bool is_only_reader(OnnxOperator& op, std::size_t index);
// Whether the input is a constant that is not trained, and all of its numbers are this one.
bool is_all(OnnxOperator& op, std::size_t index, double number);
// Returns the activation as a vector per sample, by a flatten layer if it needs one.
OnnxActivation flattened(OnnxOperator& op, const OnnxActivation& from);
// Returns the number of elements of a sample, kOnnxUnknown if that is not known.
std::int64_t elements_of(const OnnxActivation& value);

inline std::string bool_text(bool value) { return value ? "true" : "false"; }
// The constant, with the name of the parameter that PyTorch reads where the node reads it.
OnnxConstant named_constant(const OnnxTranslation& all, const io::ReadNode& node,
                            OnnxConstant constant);
// Sets the reader of a weight with no name of its own, which may stand for those of several
// modules.
void set_reader(OnnxOperator& op, OnnxConstant& weight);
// Whether two constants have the same numbers. The exporter may have stored a parameter twice: as
// it is, and transposed. False for further tensors after kMaxOnnxCompared numbers.
bool has_same_numbers(OnnxTranslation& all, const OnnxConstant& a, const OnnxConstant& b);
// Whether both layers have the same parameters.
bool has_arrays_of(OnnxTranslation& all, const OnnxListedLayer& layer,
                   const OnnxListedLayer& other);
// Adds a layer with a weight and perhaps a bias. A weight that an earlier layer has is shared, as
// in PyTorch, with its bias. Returns the layer's index.
int add_weighted(OnnxOperator& op, OnnxListedLayer layer);
// Adds a norm: its weight, its bias and, of a batch norm, mean and variance. One with the
// parameters of an earlier norm shares them and its running statistics. Returns the layer's index.
int add_norm(OnnxOperator& op, OnnxListedLayer layer);
// Lets a layer with the weight and the bias of an earlier one share them.
void tie_to_owner(OnnxTranslation& all, int index);
// Whether the parameter is a layer of its own, since several layers read it in different ways.
bool is_apart(const OnnxTranslation& all, const OnnxConstant& parameter);
// Whether the parameters belong to one module, by their names in PyTorch: a bias of another one, or
// of none, is a layer of its own, so that it keeps its name.
bool is_bias_of(const OnnxOperator& op, const OnnxTranslation& all, const OnnxConstant& weight,
                const OnnxConstant& bias);
// Whether the node has a bias as input 2. Zeros that the graph computes are none: PyTorch writes
// them with optimize=False for a layer without a bias.
bool has_bias(OnnxOperator& op);
bool has_own_bias(OnnxOperator& op);  // and is the layer's own
// Adds a bias that is not the layer's own to its output.
OnnxActivation with_bias_apart(OnnxOperator& op, OnnxActivation value);

// The inputs of Slice, of equal lengths. Throws OnnxUnsupported if they are not.
struct OnnxSlice {
  std::vector<std::int64_t> begins, ends, axes, steps;
};
OnnxSlice slice_numbers(OnnxOperator& op);

// Computes the node if all of its inputs are computable constants; else returns false.
bool fold_node(OnnxOperator& op);

// Networks that read token ids: onnx_tokens/ has these.
//
// Passes on token ids that a node does not change: a Reshape to their shape, a Cast to integers.
// Returns false for other inputs. Throws OnnxUnsupported if the node changes them.
bool keep_tokens(OnnxOperator& op);

// Gather of rows of a table by token ids is a layer `embedding`. Returns false for other indices.
bool set_embedding(OnnxOperator& op);

// Lets the matrix of a dense layer be the table of an embedding if the exporter has computed the
// matrix from it: PyTorch trains one tensor then.
void share_table(OnnxOperator& op, OnnxListedLayer& layer);

// Adds input `index`, a constant mask, to scores of attention. Returns false for other sums.
bool add_mask(OnnxOperator& op, std::size_t index);
// Returns the layer of attention's scores whose later positions the node masks by this
// condition; -1: it is another choice. The node's input becomes that layer's output.
int masked_scores(OnnxOperator& op, const OnnxTensor& condition);
// A choice of all entries of one value is that value. Returns false for other choices.
bool set_only_choice(OnnxOperator& op, const OnnxTensor& condition);
// IsNaN of a softmax is false if each row has entries without a mask. Returns false for other
// values.
bool set_never_nan(OnnxOperator& op);

// x * sigmoid(x) as one layer; returns false for other products.
bool set_gated(OnnxOperator& op);

// The table of operators. Returns null for an unknown type.
using OnnxBuild = void (*)(OnnxOperator& op);
OnnxBuild find_onnx_operator(const std::string& type);
std::string onnx_operator_names();

// Rows of that table, by the file that has their functions.
struct OnnxOperatorRow {
  const char* type;
  OnnxBuild build;
};
std::vector<OnnxOperatorRow> onnx_weight_operators();  // layers with parameters
std::vector<OnnxOperatorRow> onnx_norms();             // of channels
std::vector<OnnxOperatorRow> onnx_activations();       // activation functions and products
std::vector<OnnxOperatorRow> onnx_plain_operators();   // other layers without parameters
std::vector<OnnxOperatorRow> onnx_convolutions();      // onnx_windows/ has these
std::vector<OnnxOperatorRow> onnx_pools();
std::vector<OnnxOperatorRow> onnx_resizing();
std::vector<OnnxOperatorRow> onnx_padding();
std::vector<OnnxOperatorRow> onnx_shape_operators();    // shapes, and constants
std::vector<OnnxOperatorRow> onnx_general_operators();  // sums, products and means of any tensors
std::vector<OnnxOperatorRow> onnx_movements();          // numbers in another order
std::vector<OnnxOperatorRow> onnx_token_operators();    // onnx_tokens/ has these

}  // namespace models
