// Finds the tensors of an ONNX file that PyTorch trains, as far as the file states that.
//
// With dynamo=True, the exporter writes a signature that names parameters, buffers and constants,
// and the tensors that it has computed name the ones that they were computed from. Other files only
// have names: parameters and buffers look alike there, and count as parameters unless their name
// belongs to a buffer or to no module at all.
//
// Exporters merge tensors that are equal, and leave out biases that are zero. The calls in the
// metadata of nodes (onnx_calls.h) name the parameters that PyTorch reads there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"

namespace models {

struct OnnxCall;

enum class OnnxOrigin : std::uint8_t {
  kParameter,  // is trained
  kBuffer,     // belongs to a module that does not train it, or was computed from such tensors
  kNumbers,    // a part of an expression, as Python's numbers are
  kComputed,   // by the exporter; from which tensors is unknown
};

class OnnxOrigins {
 public:
  // `buffers`: tensors that are no parameters by their numbers, whatever their names are.
  explicit OnnxOrigins(const io::OnnxGraph& graph,
                       std::unordered_set<const io::StoredTensor*> buffers = {});

  // Returns the origin of this tensor under this name: its own, or that of a node `Identity`, which
  // the exporter writes for tensors that are equal.
  OnnxOrigin of(const io::StoredTensor& tensor, const std::string& name) const;
  // Returns whether the file says which tensors are parameters.
  bool are_known() const { return !signature_.empty(); }
  // The parameters that the exporter has computed this tensor from; none for others.
  std::vector<std::string> parameters_in(const std::string& name) const;
  // The values that the exporter has computed this tensor from; none for others.
  std::vector<std::string> computed_from(const std::string& name) const;

  // Returns the parameter that PyTorch reads where this node reads a tensor as this input: `name`,
  // unless the exporter has merged or transposed it. `name`: that of the tensor, or of an Identity.
  std::string parameter_read(const io::ReadNode& node, std::size_t input,
                             const std::string& name) const;
  // Returns the buffer that PyTorch reads where a batch norm reads this input as its mean or
  // variance, in whose place the file may have an equal parameter; the node's output if the call
  // names none. "": the input is another one, or the file does not say.
  std::string statistic_read(const io::ReadNode& node, std::size_t input) const;
  // Returns the bias of the Linear layer or the convolution that this node comes from, which the
  // file does not contain if it is zero; "": it has none, or the file does not say.
  std::string bias_of(const io::ReadNode& node) const;
  // The parameters that are arguments of the call.
  std::vector<std::string> parameters_of(const OnnxCall& call) const;
  // The parameters that the signature names, in its order.
  const std::vector<std::string>& parameters() const { return parameters_; }

  // Returns whether PyTorch has named the tensors, by modules.
  bool is_torch() const { return is_torch_; }
  // Returns whether the tensor has the shape and the order of the module's parameter or buffer: the
  // exporter, or this program's, has not computed it.
  bool has_layout_of_module(const io::StoredTensor& tensor) const;
  // Returns whether it is the name of a value and not of a module's tensor.
  bool is_anonymous(const std::string& name) const;

 private:
  OnnxOrigin by_signature(const std::string& name) const;
  OnnxOrigin by_name(const io::StoredTensor& tensor, const std::string& name) const;

  // Whether the exporter has computed this tensor from other arguments of the call than this one.
  bool is_computed_by(const OnnxCall& call, const std::string& name,
                      const std::string& argument) const;
  void read_signature_line(const std::string& line);
  std::string parameter_of(const std::string& argument) const;  // of a call; "": no parameter

  std::unordered_map<std::string, OnnxOrigin> signature_;      // by name
  std::unordered_map<std::string, std::string> placeholders_;  // by the name in calls
  std::vector<std::string> parameters_;
  std::unordered_map<std::string, std::vector<std::string>> folded_;
  std::unordered_set<std::string> frozen_norms_;  // modules whose statistics no norm updates
  std::unordered_set<const io::StoredTensor*> buffers_;
  bool is_torch_ = false, is_own_ = false;  // the file's producer
};

// The texts between pairs of single quotes: the elements of a list of Python.
std::vector<std::string> quoted_words(const std::string& text);

}  // namespace models
