// Access to a node's attributes and inputs, and the table of operators.
#include "models/onnx/onnx_operator.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"

namespace models {
namespace {

const std::map<std::string, OnnxBuild>& onnx_table() {
  static const std::map<std::string, OnnxBuild> table = [] {
    std::map<std::string, OnnxBuild> all;
    for (const auto& rows : {onnx_weight_operators(), onnx_activations(), onnx_plain_operators(),
                             onnx_shape_operators()})
      for (const OnnxOperatorRow& row : rows) all.emplace(row.type, row.build);
    return all;
  }();
  return table;
}

template <class T>
T read_number(const io::NamedArray& array, std::size_t i) {
  T value;
  std::memcpy(&value, array.data.data() + i * sizeof(T), sizeof(T));
  return value;
}

[[noreturn]] void refuse_attribute(const std::string& name, const char* expected) {
  throw OnnxUnsupported("attribute " + base::escape_text(name) + " is not " + expected);
}

}  // namespace

double shortest_decimal(float value) {
  char text[32];
  *std::to_chars(text, text + sizeof text - 1, value).ptr = 0;
  return std::strtod(text, nullptr);
}

OnnxBuild find_onnx_operator(const std::string& type) {
  const auto found = onnx_table().find(type);
  return found == onnx_table().end() ? nullptr : found->second;
}

std::string onnx_operator_names() {
  std::vector<std::string> names;
  for (const auto& [name, build] : onnx_table()) names.push_back(name);
  return base::join_text(names);
}

std::vector<std::int64_t> shape_of(const OnnxConstant& constant) {
  std::vector<std::int64_t> shape = constant.tensor->shape;
  if (constant.transposed) std::swap(shape.at(0), shape.at(1));
  return shape;
}

const io::ReadAttribute* OnnxAttributes::attribute(const std::string& name) const {
  for (const io::ReadAttribute& attribute : node_.attributes)
    if (attribute.name == name) return &attribute;
  return nullptr;
}

std::int64_t OnnxAttributes::integer(const std::string& name, std::int64_t otherwise) const {
  const io::ReadAttribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(&found->value)) return *value;
  refuse_attribute(name, "an integer");
}

double OnnxAttributes::real(const std::string& name, double otherwise) const {
  const io::ReadAttribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (const auto* value = std::get_if<float>(&found->value)) return shortest_decimal(*value);
  refuse_attribute(name, "a float");
}

std::string OnnxAttributes::text(const std::string& name, const std::string& otherwise) const {
  const io::ReadAttribute* found = attribute(name);
  if (found == nullptr) return otherwise;
  if (const auto* value = std::get_if<std::string>(&found->value)) return *value;
  refuse_attribute(name, "a text");
}

std::optional<std::vector<std::int64_t>> OnnxAttributes::integers(const std::string& name) const {
  const io::ReadAttribute* found = attribute(name);
  if (found == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::vector<std::int64_t>>(&found->value)) return *value;
  refuse_attribute(name, "a list of integers");
}

bool OnnxOperator::has_input(std::size_t index) const {
  return index < node().inputs.size() && !node().inputs[index].empty();
}

const OnnxKnown& OnnxOperator::input(std::size_t index) const {
  if (!has_input(index)) throw OnnxUnsupported("input " + std::to_string(index) + " is missing");
  const OnnxKnown* known = all_.values.find(node().inputs[index]);
  if (known == nullptr)
    throw OnnxUnsupported("its input '" + base::escape_text(node().inputs[index]) +
                          "' is the output of no earlier node");
  if (std::holds_alternative<OnnxUntranslated>(*known)) throw OnnxDependent();
  return *known;
}

bool OnnxOperator::is_activation(std::size_t index) const {
  return std::holds_alternative<OnnxActivation>(input(index));
}

OnnxActivation OnnxOperator::activation(std::size_t index) {
  const auto* found = std::get_if<OnnxActivation>(&input(index));
  if (found == nullptr)
    throw OnnxUnsupported("input " + std::to_string(index) +
                          " is a constant, expected the output of a layer");
  if (found->shape.size() == 2 && found->layout == OnnxActivation::Layout::kImage) {
    const OnnxActivation row = flattened(*this, *found);
    all_.values.set(node().inputs[index], row);
    return row;
  }
  return *found;
}

OnnxActivation OnnxOperator::image(std::size_t index) {
  const OnnxActivation found = activation(index);
  if (found.layout != OnnxActivation::Layout::kImage)
    throw OnnxUnsupported("it reads " + onnx_shape_text(found.shape) +
                          ", expected an image, [batch, channels, height, width]");
  return found;
}

OnnxConstant OnnxOperator::constant(std::size_t index) const {
  if (const auto* found = std::get_if<OnnxConstant>(&input(index))) return *found;
  throw OnnxUnsupported("input " + std::to_string(index) +
                        " is computed, expected a constant: a parameter of the model");
}

OnnxConstant OnnxOperator::constant(std::size_t index,
                                    const std::vector<std::int64_t>& shape) const {
  const OnnxConstant found = constant(index);
  if (shape_of(found) != shape)
    throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(shape_of(found)) + ", expected " +
                          onnx_shape_text(shape));
  return found;
}

bool OnnxOperator::has_numbers(std::size_t index) const {
  const OnnxKnown& known = input(index);
  if (std::holds_alternative<OnnxNumbers>(known)) return true;
  const auto* constant = std::get_if<OnnxConstant>(&known);
  return constant != nullptr &&
         (constant->tensor->type == io::DType::kI64 || constant->tensor->type == io::DType::kI32);
}

std::vector<std::int64_t> OnnxOperator::numbers(std::size_t index) const {
  if (const auto* found = std::get_if<OnnxNumbers>(&input(index))) return found->values;
  const std::string who = "input " + std::to_string(index);
  if (!has_numbers(index)) throw OnnxUnsupported(who + " is not a list of integers");
  const io::StoredTensor& tensor = *constant(index).tensor;
  if (tensor.shape.size() > 1 || tensor.count() > kMaxOnnxNumbers)
    throw OnnxUnsupported(who + " has the shape " + onnx_shape_text(tensor.shape) +
                          ", expected a list of at most " + std::to_string(kMaxOnnxNumbers) +
                          " integers");
  const io::NamedArray array = all_.file.load(tensor);
  std::vector<std::int64_t> values(tensor.count());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = array.type == io::DType::kI64 ? read_number<std::int64_t>(array, i)
                                              : read_number<std::int32_t>(array, i);
  return values;
}

double OnnxOperator::number(std::size_t index) const {
  if (const auto* found = std::get_if<double>(&input(index))) return *found;
  const io::StoredTensor& tensor = *constant(index).tensor;
  const bool is_f64 = tensor.type == io::DType::kF64;
  if ((!is_f64 && tensor.type != io::DType::kF32) || tensor.count() != 1)
    throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(tensor.shape) + ", expected one float");
  const io::NamedArray array = all_.file.load(tensor);
  return is_f64 ? read_number<double>(array, 0) : shortest_decimal(read_number<float>(array, 0));
}

int OnnxOperator::add_layer(const std::string& kind, const std::vector<int>& inputs,
                            std::vector<std::pair<std::string, std::string>> options) {
  return all_.layers.add({.kind = kind,
                          .name = all_.layers.free_name("", node()),
                          .tied = {},
                          .inputs = inputs,
                          .options = std::move(options),
                          .arrays = {}});
}

std::int64_t elements_of(const OnnxActivation& value) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < value.shape.size(); ++i)
    if (value.shape[i] == kOnnxUnknown ||
        __builtin_mul_overflow(elements, value.shape[i], &elements))
      return kOnnxUnknown;
  return elements;
}

OnnxActivation flattened(OnnxOperator& op, const OnnxActivation& from) {
  OnnxActivation to = from;
  to.shape = {kOnnxBatch, elements_of(from)};
  if (from.layout == OnnxActivation::Layout::kVector) return to;
  to.layout = OnnxActivation::Layout::kVector;
  to.layer = op.add_layer("flatten", {from.layer});
  return to;
}

}  // namespace models
