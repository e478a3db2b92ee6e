// Constants and parameters as the outputs of layers.
#include <algorithm>

#include "io/base/text/text_parts.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

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

// A tensor of the file that is not trained, with the numbers that it has there.
OnnxActivation buffer_value(OnnxOperator& op, const OnnxConstant& stored) {
  OnnxLayerList& layers = op.all().layers;
  const Numbers shape = shape_of(stored);
  OnnxActivation value = without_samples(shape);
  const int user = layers.user_of(stored);
  const bool is_kept = user >= 0 && layers.at(user).kind == "constant" &&
                       layers.at(user).arrays[0].from.transposed == stored.transposed;
  value.layer = user;
  if (is_kept) return value;
  const bool is_named = stored.origin == OnnxOrigin::kBuffer;
  value.layer = layers.add({.kind = "constant",
                            .name = is_named ? layers.free_parameter_name(initializer_name(stored))
                                             : layers.free_name("", op.node()),
                            .tied = {},
                            .inputs = {},
                            .options = {{"shape", base::shape_text(shape)}},
                            .arrays = {{"value", stored, shape}}});
  if (user < 0) layers.set_user(stored, value.layer);
  return value;
}

// The parameter's own name. With dynamo=True, the exporter reads equal parameters of other modules
// in its place: if the node does not say which one, that of its module under the same name is
// meant.
std::string parameter_name(OnnxOperator& op, const OnnxConstant& stored) {
  const std::string& name = initializer_name(stored);
  if (!op.node().call.empty()) return name;
  const std::string own =
      module_of(op.node()) + name.substr(std::min(name.rfind('.'), name.size()));
  const OnnxOrigins& origins = op.all().origins;
  const bool is_merged = origins.are_known() && op.all().values.find(own) == nullptr &&
                         origins.of(*stored.tensor, own) == OnnxOrigin::kParameter;
  return is_merged ? own : name;
}

}  // namespace

OnnxActivation parameter_value(OnnxOperator& op, OnnxConstant stored) {
  OnnxTranslation& all = op.all();
  Numbers shape = shape_of(stored);
  if (shape.empty()) shape = {1};
  OnnxActivation value = without_samples(shape);
  const std::string name = parameter_name(op, stored);
  if (name != initializer_name(stored)) stored.alias = name;
  int user = all.layers.user_of(stored);
  const std::string kind = user < 0 ? "" : all.layers.at(user).kind;
  // A norm can leave it to layers of their own: separate_parameters().
  const bool is_of_norm = kind.ends_with("_norm") || kind == "batch_norm2d";
  if (is_of_norm) user = -1;
  if (user >= 0 && kind != "parameter")
    throw OnnxUnsupported("it shares '" + name + "' with layer '" + all.layers.at(user).name +
                          "', which uses it in another way");
  if (user >= 0) {
    const OnnxListedLayer& layer = all.layers.at(user);
    if (layer.arrays.at(0).from.transposed == stored.transposed) {
      value.layer = user;
      return value;
    }
    value = without_samples(layer.arrays[0].shape);  // the same numbers in the other order
    std::swap(value.plain.dims.at(0), value.plain.dims.at(1));
    value.shape = shape_of(value.plain);
    value.layer = user;
    return value;
  }
  value.layer = all.layers.add(
      {.kind = "parameter",
       .name = all.layers.free_parameter_name(stored.reader.empty() ? name : stored.reader),
       .tied = {},
       .inputs = {},
       .options = {{"shape", base::shape_text(shape)}},
       .arrays = {{"weight", stored, shape}}});
  if (!is_of_norm) all.layers.set_user(stored, value.layer);
  return value;
}

OnnxActivation tensor_value(OnnxOperator& op, OnnxTensor tensor) {
  OnnxLayerList& layers = op.all().layers;
  OnnxActivation value = without_samples(tensor.shape);
  if (std::ranges::any_of(tensor.integers, is_onnx_symbol))
    throw OnnxUnsupported("it computes with an extent that is unknown");
  count_computed(op, count_of(tensor));
  if (!tensor.is_real) tensor.reals.assign(tensor.integers.begin(), tensor.integers.end());
  value.layer = layers.add({.kind = "constant",
                            .name = layers.free_name("", op.node()),
                            .tied = {},
                            .inputs = {},
                            .options = {{"shape", base::shape_text(tensor.shape)}},
                            .arrays = {{"value", {}, tensor.shape, std::move(tensor.reals)}}});
  return value;
}

OnnxActivation constant_value(OnnxOperator& op, std::size_t index) {
  const auto* stored = std::get_if<OnnxConstant>(&op.input(index));
  if (stored != nullptr && stored->origin == OnnxOrigin::kParameter)
    return parameter_value(op, op.constant(index));
  if (stored != nullptr && stored->tensor->count() > 1) {
    if (stored->origin == OnnxOrigin::kComputed)
      add_once(op.all().read_as_computed, initializer_name(*stored));
    if (stored->tensor->type && base::is_floating(*stored->tensor->type))
      return buffer_value(op, *stored);
  }
  OnnxTensor tensor = op.tensor(index);
  if (std::ranges::any_of(tensor.shape, is_onnx_symbol) || tensor.shape.empty())
    throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                          onnx_shape_text(tensor.shape) + ", expected a constant with dimensions");
  return tensor_value(op, std::move(tensor));
}

OnnxActivation plain_input(OnnxOperator& op, std::size_t index) {
  if (const auto* value = std::get_if<OnnxActivation>(&op.input(index))) return as_plain(*value);
  return constant_value(op, index);
}

void set_plain(OnnxOperator& op, OnnxActivation value, std::size_t output) {
  op.all().values.set(op.node().outputs.at(output), as_special(std::move(value)));
}

}  // namespace models
