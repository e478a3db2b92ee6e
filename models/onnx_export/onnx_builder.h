// Builds an ONNX graph node by node: names of values and of constants.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/interchange/onnx_writer.h"

namespace models {

using AttributeList = std::vector<io::OnnxAttribute>;

class OnnxBuilder {
 public:
  // `weights`: the weights that nodes may read, in PyTorch's layouts; unread ones are omitted.
  // `taken`: names that no value of a node gets.
  OnnxBuilder(std::vector<io::NamedArray> weights, const std::vector<std::string>& taken);

  // Nodes are named after their layer.
  void begin_layer(const std::string& name) { layer_ = name; }

  // Adds an operator; returns the name of its output, or the names of its outputs.
  std::string add(const std::string& type, std::vector<std::string> inputs,
                  AttributeList attributes = {});
  std::vector<std::string> add_split(const std::string& type, std::vector<std::string> inputs,
                                     AttributeList attributes, int outputs);

  // Returns the weight of this name; throws engine::Error if there is none.
  const std::string& weight(const std::string& name);
  // Returns the matrix of this name with rows and columns exchanged in the file, for a matrix that
  // no other node reads.
  const std::string& transposed_weight(const std::string& name);

  // Add constants: equal ones are stored once.
  std::string scalar(float value);
  std::string floats(const std::vector<float>& values, std::vector<std::int64_t> shape);
  std::string integers(const std::vector<std::int64_t>& values);  // a vector
  std::string integer(std::int64_t value);                        // a scalar

  // Returns the value with this name, which is made on first use: for values that several layers
  // share.
  template <class Make>
  std::string shared(const std::string& name, const Make& make) {
    if (const auto found = shared_.find(name); found != shared_.end()) return found->second;
    return shared_[name] = make();
  }

  // Renames the value to one of the names in `taken`.
  void rename(const std::string& value, const std::string& name);

  // Moves nodes and constants into the model. Must be the last call.
  void finish(io::OnnxModel& model);

 private:
  std::string unique(const std::string& name);
  std::string constant(const std::string& text, io::DType type, std::vector<std::int64_t> shape,
                       std::span<const std::byte> data);
  io::NamedArray& find(const std::string& name);

  std::vector<io::NamedArray> weights_, constants_;
  std::map<std::string, std::size_t> place_;  // index in weights_
  std::set<std::string> read_;                // weights that nodes read
  std::set<std::string> names_;
  std::map<std::string, std::string> shared_;
  std::vector<io::OnnxNode> nodes_;
  std::string layer_;
};

}  // namespace models
