// Makes names unique, and merges equal constants.
#include "models/onnx_export/onnx_builder.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/core/error.h"

namespace models {

OnnxBuilder::OnnxBuilder(std::vector<io::NamedArray> weights, const std::vector<std::string>& taken)
    : weights_(std::move(weights)), names_(taken.begin(), taken.end()) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    place_[weights_[i].name] = i;
    names_.insert(weights_[i].name);
  }
}

std::string OnnxBuilder::unique(const std::string& name) {
  std::string free = name;
  for (int number = 2; !names_.insert(free).second; ++number)
    free = name + "_" + std::to_string(number);
  return free;
}

std::string OnnxBuilder::add(const std::string& type, std::vector<std::string> inputs,
                             AttributeList attributes) {
  return add_split(type, std::move(inputs), std::move(attributes), 1).front();
}

std::vector<std::string> OnnxBuilder::add_split(const std::string& type,
                                                std::vector<std::string> inputs,
                                                AttributeList attributes, int outputs) {
  io::OnnxNode node{.type = type,
                    .name = unique(layer_ + "/" + type),
                    .inputs = std::move(inputs),
                    .outputs = {},
                    .attributes = std::move(attributes)};
  node.outputs.push_back(node.name);
  for (int i = 1; i < outputs; ++i) node.outputs.push_back(unique(node.name));
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

io::NamedArray& OnnxBuilder::find(const std::string& name) {
  const auto found = place_.find(name);
  if (found == place_.end()) throw engine::Error("internal: the model's state has no " + name);
  read_.insert(name);
  return weights_[found->second];
}

const std::string& OnnxBuilder::weight(const std::string& name) { return find(name).name; }

const std::string& OnnxBuilder::transposed_weight(const std::string& name) {
  io::NamedArray& array = find(name);
  const auto rows = static_cast<std::size_t>(array.shape.at(0)),
             columns = static_cast<std::size_t>(array.shape.at(1)),
             bytes = base::size_of(array.type);
  std::vector<std::byte> turned(array.data.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(&turned[(c * rows + r) * bytes], &array.data[(r * columns + c) * bytes], bytes);
  array.data = std::move(turned);
  std::swap(array.shape[0], array.shape[1]);
  return array.name;
}

std::string OnnxBuilder::constant(const std::string& text, io::DType type,
                                  std::vector<std::int64_t> shape,
                                  std::span<const std::byte> data) {
  return shared("constant/" + text, [&] {
    constants_.push_back({.name = unique("constant/" + text),
                          .section = io::Section::kParameter,
                          .type = type,
                          .shape = std::move(shape),
                          .data = {data.begin(), data.end()}});
    return constants_.back().name;
  });
}

std::string OnnxBuilder::scalar(float value) {
  // base::shortest_text() does not support minus infinity.
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return constant(std::string(text, end), io::DType::kF32, {}, std::as_bytes(std::span(&value, 1)));
}

std::string OnnxBuilder::floats(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return constant(layer_ + "/" + std::to_string(constants_.size()), io::DType::kF32,
                  std::move(shape), std::as_bytes(std::span(values)));
}

std::string OnnxBuilder::integers(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return constant("[" + text + "]", io::DType::kI64, {static_cast<std::int64_t>(values.size())},
                  std::as_bytes(std::span(values)));
}

std::string OnnxBuilder::integer(std::int64_t value) {
  return constant("int " + std::to_string(value), io::DType::kI64, {},
                  std::as_bytes(std::span(&value, 1)));
}

void OnnxBuilder::rename(const std::string& value, const std::string& name) {
  for (io::OnnxNode& node : nodes_) {
    std::ranges::replace(node.inputs, value, name);
    std::ranges::replace(node.outputs, value, name);
  }
}

void OnnxBuilder::finish(io::OnnxModel& model) {
  model.nodes = std::move(nodes_);
  std::erase_if(weights_, [&](const io::NamedArray& a) { return !read_.contains(a.name); });
  model.constants = std::move(weights_);
  for (io::NamedArray& array : constants_) model.constants.push_back(std::move(array));
}

}  // namespace models
