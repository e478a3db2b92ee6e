// Access to a node's attributes and inputs, and the table of operators.
#include "models/onnx_translation/onnx_operator.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "io/base/numbers/number_bytes.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "models/onnx_origins/onnx_calls.h"

namespace models {
namespace {

[[noreturn]] void refuse_attribute(const std::string& name, const char* expected) {
  throw OnnxUnsupported("attribute " + base::escape_text(name) + " is not " + expected);
}

}  // namespace

double shortest_decimal(float value) {
  char text[32];
  *std::to_chars(text, text + sizeof text - 1, value).ptr = 0;
  return std::strtod(text, nullptr);
}

bool is_only_reader(OnnxOperator& op, std::size_t index) {
  const OnnxTranslation& all = op.all();
  const auto* value = std::get_if<OnnxActivation>(&op.input(index));
  return value != nullptr && value->layer >= 0 && !all.layers.is_read(value->layer) &&
         all.values.readers(op.node().inputs[index]) == 1 &&
         all.values.has_one_reader_left(value->layer);
}

bool is_all(OnnxOperator& op, std::size_t index, double number) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(index));
  if (op.is_activation(index) || (constant != nullptr && !op.is_computable(index))) return false;
  const OnnxTensor found = op.tensor(index);
  return found.is_real && std::ranges::all_of(found.reals, [&](double x) { return x == number; });
}

std::vector<std::int64_t> shape_of(const OnnxConstant& constant) {
  std::vector<std::int64_t> shape = constant.tensor->shape;
  if (constant.transposed) std::swap(shape.at(0), shape.at(1));
  return shape;
}

OnnxConstant named_constant(const OnnxTranslation& all, const io::ReadNode& node, std::size_t input,
                            OnnxConstant constant) {
  if (!is_trained_weight(constant)) return constant;
  if (std::string statistic = all.origins.statistic_read(node, input); !statistic.empty()) {
    constant.origin = OnnxOrigin::kBuffer;
    constant.alias = std::move(statistic);
    return constant;
  }
  if (constant.computation == OnnxComputation::kShared) {
    OnnxCall call = read_onnx_call(node.call);
    const std::size_t weight = weight_argument(call);
    if (weight == 0 || weight >= call.arguments.size()) return constant;
    call.arguments = {call.arguments[weight]};
    const std::vector<std::string> read = all.origins.parameters_of(call);
    if (!read.empty()) constant.alias = read[0];
    return constant;
  }
  constant.computation = computation_of(all.origins, node, constant.tensor->name);
  const std::string& name = initializer_name(constant);
  if (std::string read = all.origins.parameter_read(node, input, name); read != name)
    constant.alias = std::move(read);
  return constant;
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

void OnnxOperator::refuse_tokens(std::size_t index) const {
  if (std::holds_alternative<OnnxTokens>(input(index)))
    throw OnnxUnsupported(
        "it computes with token ids, expected them in Gather alone, as rows of an embedding table "
        "(axis 0); export the network without a mask of padding");
}

bool OnnxOperator::is_activation(std::size_t index) const {
  return std::holds_alternative<OnnxActivation>(input(index));
}

OnnxConstant OnnxOperator::constant(std::size_t index) const {
  refuse_tokens(index);
  if (const auto* found = std::get_if<OnnxConstant>(&input(index)))
    return named_constant(all_, node(), index, *found);
  throw OnnxUnsupported("input " + std::to_string(index) +
                        " is computed, expected a constant: a parameter of the model");
}

OnnxConstant OnnxOperator::constant(std::size_t index,
                                    const std::vector<std::int64_t>& shape) const {
  OnnxConstant found = constant(index);
  if (shape_of(found) != shape)
    throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(shape_of(found)) + ", expected " +
                          onnx_shape_text(shape));
  return found;
}

bool OnnxOperator::is_computable(std::size_t index) const {
  const OnnxKnown& known = input(index);
  if (std::holds_alternative<OnnxTensor>(known)) return true;
  const auto* constant = std::get_if<OnnxConstant>(&known);
  if (constant == nullptr || constant->tensor->count() > kMaxOnnxComputed) return false;
  const auto type = constant->tensor->type;
  if (type == io::DType::kI64 || type == io::DType::kI32 || type == io::DType::kU8) return true;
  const bool is_real = type == io::DType::kF32 || type == io::DType::kF64;
  return is_real && !constant->transposed && constant->origin != OnnxOrigin::kParameter;
}

// Floats are the shortest decimal numbers, as attributes are: both stand for Python's numbers.
// Numbers of buffers are exact.
OnnxTensor OnnxOperator::tensor(std::size_t index) const {
  if (const auto* found = std::get_if<OnnxTensor>(&input(index))) return *found;
  const OnnxConstant from = constant(index);
  const io::StoredTensor& stored = *from.tensor;
  const std::string who = "input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(stored.shape) + ", expected ";
  if (stored.count() > kMaxOnnxComputed)
    throw OnnxUnsupported(who + "at most " + std::to_string(kMaxOnnxComputed) + " elements");
  const auto type = stored.type;
  OnnxTensor all{.shape = shape_of(from), .integers = {}, .reals = {}};
  all.is_real = type == io::DType::kF32 || type == io::DType::kF64;
  if (!all.is_real && type != io::DType::kI64 && type != io::DType::kI32 && type != io::DType::kU8)
    throw OnnxUnsupported(who + "numbers of type float, double, int32, int64 or bool");
  const io::NamedArray array = all_.file.load(stored);
  const std::size_t rows = static_cast<std::size_t>(from.transposed ? stored.shape[0] : 1);
  for (std::size_t at = 0; at < stored.count(); ++at) {
    const std::size_t i = at % rows * (stored.count() / rows) + at / rows;
    if (type == io::DType::kF32) {
      const float value = base::element_at<float>(array.data, i);
      const bool is_exact = from.origin == OnnxOrigin::kBuffer;
      all.reals.push_back(is_exact ? static_cast<double>(value) : shortest_decimal(value));
    }
    if (type == io::DType::kF64) all.reals.push_back(base::element_at<double>(array.data, i));
    if (type == io::DType::kU8)
      all.integers.push_back(base::element_at<std::uint8_t>(array.data, i));
    if (type == io::DType::kI32)
      all.integers.push_back(base::element_at<std::int32_t>(array.data, i));
    if (type == io::DType::kI64)
      all.integers.push_back(integer_of_file(base::element_at<std::int64_t>(array.data, i)));
  }
  return all;
}

std::vector<std::int64_t> OnnxOperator::numbers(std::size_t index) const {
  const std::string who = "input " + std::to_string(index);
  if (!is_computable(index)) throw OnnxUnsupported(who + " is not a list of integers");
  OnnxTensor found = tensor(index);
  if (found.is_real) throw OnnxUnsupported(who + " is not a list of integers");
  if (found.shape.size() > 1 || found.integers.size() > kMaxOnnxNumbers)
    throw OnnxUnsupported(who + " has the shape " + onnx_shape_text(found.shape) +
                          ", expected a list of at most " + std::to_string(kMaxOnnxNumbers) +
                          " integers");
  return std::move(found.integers);
}

double OnnxOperator::number(std::size_t index) const {
  const auto* constant = std::get_if<OnnxConstant>(&input(index));
  if (constant == nullptr || constant->tensor->count() == 1) {
    const OnnxTensor found = tensor(index);
    if (constant != nullptr && constant->origin == OnnxOrigin::kParameter)
      add_once(all_.read_as_numbers, node().inputs[index]);
    if (found.is_real && found.reals.size() == 1) return found.reals[0];
  }
  throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                        (constant != nullptr ? onnx_shape_text(constant->tensor->shape) : "?") +
                        ", expected one float");
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

OnnxSlice slice_numbers(OnnxOperator& op) {
  OnnxSlice slice{.begins = op.numbers(1), .ends = op.numbers(2), .axes = {}, .steps = {}};
  const std::size_t count = slice.begins.size();
  slice.axes.resize(count);
  std::iota(slice.axes.begin(), slice.axes.end(), 0);
  if (op.has_input(3)) slice.axes = op.numbers(3);
  slice.steps = op.has_input(4) ? op.numbers(4) : std::vector<std::int64_t>(count, 1);
  if (slice.ends.size() != count || slice.axes.size() != count || slice.steps.size() != count)
    throw OnnxUnsupported("begins, ends, axes and steps of different lengths");
  return slice;
}

}  // namespace models
