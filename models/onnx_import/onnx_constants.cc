// Constants and parameters as the outputs of layers.
#include <algorithm>

#include "models/onnx_import/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// A value of these dimensions that is the same for all samples.
OnnxActivation without_samples(const Numbers& shape) {
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 1; }))
    throw OnnxUnsupported("a constant of the shape " + onnx_shape_text(shape) +
                          ", expected elements");
  OnnxActivation value{.shape = shape, .layout = OnnxActivation::Layout::kPlain};
  value.plain.stored = shape;
  for (const std::int64_t extent : shape) {
    value.plain.dims.emplace_back();
    if (extent == 1) continue;
    value.plain.dims.back().push_back(static_cast<int>(value.plain.axes.size()));
    value.plain.axes.push_back({extent});
  }
  return value;
}

}  // namespace

OnnxActivation parameter_value(OnnxOperator& op, const OnnxConstant& stored) {
  OnnxLayerList& layers = op.all().layers;
  const Numbers shape = shape_of(stored);
  OnnxActivation value = without_samples(shape);
  const int user = layers.user_of(stored.tensor);
  if (user >= 0 && layers.at(user).kind != "parameter")
    throw OnnxUnsupported("it shares '" + stored.tensor->name + "' with layer '" +
                          layers.at(user).name + "', which uses it in another way");
  value.layer = user;
  if (user >= 0) return value;
  value.layer = layers.add({.kind = "parameter",
                            .name = layers.free_parameter_name(stored.tensor->name),
                            .tied = {},
                            .inputs = {},
                            .options = {{"shape", list_text(shape)}},
                            .arrays = {{"weight", stored, shape}}});
  layers.set_user(stored.tensor, value.layer);
  return value;
}

OnnxActivation tensor_value(OnnxOperator& op, OnnxTensor tensor) {
  OnnxLayerList& layers = op.all().layers;
  OnnxActivation value = without_samples(tensor.shape);
  if (std::ranges::any_of(tensor.integers, is_onnx_symbol))
    throw OnnxUnsupported("it computes with an extent that is unknown");
  if (!tensor.is_real) tensor.reals.assign(tensor.integers.begin(), tensor.integers.end());
  value.layer = layers.add({.kind = "constant",
                            .name = layers.free_name("", op.node()),
                            .tied = {},
                            .inputs = {},
                            .options = {{"shape", list_text(tensor.shape)}},
                            .arrays = {{"value", {}, tensor.shape, std::move(tensor.reals)}}});
  return value;
}

OnnxActivation constant_value(OnnxOperator& op, std::size_t index) {
  const auto* stored = std::get_if<OnnxConstant>(&op.input(index));
  const bool is_parameter = stored != nullptr && !stored->is_node && !op.is_computable(index);
  OnnxTensor tensor;
  if (!is_parameter) tensor = op.tensor(index);
  const Numbers shape = is_parameter ? shape_of(*stored) : tensor.shape;
  if (std::ranges::any_of(shape, is_onnx_symbol) || shape.empty())
    throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(shape) + ", expected a constant with dimensions");
  return is_parameter ? parameter_value(op, *stored) : tensor_value(op, std::move(tensor));
}

OnnxActivation plain_input(OnnxOperator& op, std::size_t index) {
  if (const auto* value = std::get_if<OnnxActivation>(&op.input(index))) return as_plain(*value);
  return constant_value(op, index);
}

void set_plain(OnnxOperator& op, OnnxActivation value, std::size_t output) {
  op.all().values.set(op.node().outputs.at(output), as_special(std::move(value)));
}

}  // namespace models
