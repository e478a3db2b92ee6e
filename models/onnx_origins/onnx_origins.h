// Which tensors of an ONNX file PyTorch trains, as far as the file tells.
//
// With dynamo=True, the exporter writes a signature that names parameters, buffers and constants,
// and the tensors that it has computed name the ones that they were computed from. Other files only
// have names: parameters and buffers look alike there, and count as parameters unless their name
// belongs to a buffer or to no module at all.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"

namespace models {

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

  // Returns the parameter of this module, or of one in it, that has the last parts of the name in
  // common with another one: "a.1" and "a.0.fc.weight" give "a.1.fc.weight". If there is none, or
  // it is that parameter, returns the name.
  std::string parameter_of(const std::string& module, const std::string& name) const;

  // Returns whether it is the name of a value and not of a module's tensor.
  bool is_anonymous(const std::string& name) const;

 private:
  OnnxOrigin by_signature(const std::string& name) const;
  OnnxOrigin by_name(const io::StoredTensor& tensor, const std::string& name) const;

  std::unordered_map<std::string, OnnxOrigin> signature_;  // by name
  std::unordered_map<std::string, std::vector<std::string>> folded_;
  std::unordered_set<std::string> frozen_norms_;  // modules whose statistics no norm updates
  std::unordered_set<const io::StoredTensor*> buffers_;
  bool is_torch_ = false, is_own_ = false;  // the file's producer
};

// The texts between pairs of single quotes: the elements of a list of Python.
std::vector<std::string> quoted_words(const std::string& text);

}  // namespace models
