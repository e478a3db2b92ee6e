// Layers for tensors of any rank. ONNX's values of three dimensions are [batch, channels, height,
// width], those of other ranks have the engine's order: dimension_of() translates axes.
#include <algorithm>
#include <numeric>

#include "engine/layers/general/general_layers.h"
#include "models/onnx_export/onnx_layers.h"

namespace models {
namespace {

using Ints = std::vector<std::int64_t>;

const engine::Shape& output_shape(const OnnxLayer& layer) { return layer.node().shape; }

// Returns the value with dimensions in the engine's order, or from that order in ONNX's.
std::string in_order(OnnxLayer& layer, const std::string& value, int rank, const Ints& image) {
  return rank == 3 ? layer.out.add("Transpose", {value}, {{"perm", image}}) : value;
}
std::string plain(OnnxLayer& layer, std::size_t input) {
  return in_order(layer, layer.inputs.at(input), layer.graph.input_shapes(layer.id)[input].rank(),
                  {0, 2, 3, 1});
}
std::string from_plain(OnnxLayer& layer, const std::string& value) {
  return in_order(layer, value, output_shape(layer).rank(), {0, 3, 1, 2});
}

// Returns ONNX's dimension for an axis of a sample of this rank.
std::int64_t dimension_of(std::int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return rank == 3 ? (axis == 2 ? 1 : axis + 2) : axis + 1;
}

// Returns the value with extents of 1 after the batch, so that it has the output's rank.
std::string with_rank_of_output(OnnxLayer& layer, std::size_t input) {
  OnnxBuilder& out = layer.out;
  const int rank = layer.graph.input_shapes(layer.id)[input].rank(),
            full = output_shape(layer).rank();
  const std::string& value = layer.inputs.at(input);
  if (rank == full) return value;
  if (full == 3 && rank == 1) return out.add("Unsqueeze", {value, out.integers({2, 3})});
  Ints ones(static_cast<std::size_t>(full - rank));
  std::iota(ones.begin(), ones.end(), 1);
  const std::string expanded = out.add("Unsqueeze", {plain(layer, input), out.integers(ones)});
  return from_plain(layer, expanded);
}

// Returns the tensor of the state for each sample: [batch, shape...].
std::string repeated(OnnxLayer& layer, const std::string& tensor) {
  OnnxBuilder& out = layer.out;
  const auto extents = output_shape(layer).dims();
  const std::string batch = out.shared("batch", [&] {
    return out.add("Slice",
                   {out.add("Shape", {layer.network_input}), out.integers({0}), out.integers({1})});
  });
  const std::string shape =
      out.add("Concat", {batch, out.integers({extents.begin(), extents.end()})},
              {{"axis", std::int64_t{0}}});
  return from_plain(layer, out.add("Expand", {out.weight(tensor), shape}));
}

std::string add_reshape(OnnxLayer& layer) {
  Ints shape{0};
  const auto extents = output_shape(layer).dims();
  shape.insert(shape.end(), extents.begin(), extents.end());
  return from_plain(layer, layer.out.add("Reshape", {plain(layer, 0), layer.out.integers(shape)}));
}

std::string add_permute(OnnxLayer& layer) {
  Ints order{0};
  const int rank = output_shape(layer).rank();
  for (const std::int64_t axis : layer.list("order"))
    order.push_back(axis < 0 ? axis + rank + 1 : axis + 1);
  return from_plain(layer, layer.out.add("Transpose", {plain(layer, 0)}, {{"perm", order}}));
}

std::string add_slice(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const std::int64_t first = layer.whole("first"), step = layer.whole("step");
  const std::int64_t end = first + (layer.whole("count") - 1) * step + 1;
  const std::int64_t axis = dimension_of(layer.whole("axis"), output_shape(layer).rank());
  return out.add("Slice", {layer.inputs[0], out.integers({first}), out.integers({end}),
                           out.integers({axis}), out.integers({step})});
}

std::string add_concat(OnnxLayer& layer) {
  const std::int64_t axis = dimension_of(layer.whole("axis"), output_shape(layer).rank());
  return layer.out.add("Concat", layer.inputs, {{"axis", axis}});
}

// Operator set 17 has the axes of a sum as an input, and those of others as an attribute.
std::string add_reduce(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const int rank = layer.input_shape().rank();
  Ints axes;
  for (const std::int64_t axis : layer.list("axes"))
    axes.push_back((axis < 0 ? axis + rank : axis) + 1);
  const AttributeList keep{{"keepdims", std::int64_t{output_shape(layer).rank() == rank}}};
  using enum engine::layers::ReduceFunction;
  const auto function = static_cast<engine::layers::ReduceFunction>(layer.whole("function"));
  if (function == kSum)
    return from_plain(layer, out.add("ReduceSum", {plain(layer, 0), out.integers(axes)}, keep));
  AttributeList attributes = keep;
  attributes.push_back({"axes", axes});
  const char* type = function == kMean ? "ReduceMean" : "ReduceMax";
  return from_plain(layer, out.add(type, {plain(layer, 0)}, attributes));
}

std::string add_gather(OnnxLayer& layer) {
  const std::int64_t axis = dimension_of(layer.whole("axis"), output_shape(layer).rank());
  return layer.out.add("Gather", {layer.inputs[0], layer.out.integers(layer.list("indices"))},
                       {{"axis", axis}});
}

std::string add_binary(OnnxLayer& layer, const char* type) {
  return layer.out.add(type, {with_rank_of_output(layer, 0), with_rank_of_output(layer, 1)});
}

// ONNX's types: 1 float, 9 booleans.
std::string add_compare(OnnxLayer& layer) {
  constexpr const char* kTypes[] = {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"};
  const std::string truth = add_binary(layer, kTypes[layer.whole("function")]);
  return layer.out.add("Cast", {truth}, {{"to", std::int64_t{1}}});
}

std::string add_where(OnnxLayer& layer) {
  const std::string condition =
      layer.out.add("Cast", {with_rank_of_output(layer, 0)}, {{"to", std::int64_t{9}}});
  return layer.out.add("Where",
                       {condition, with_rank_of_output(layer, 1), with_rank_of_output(layer, 2)});
}

std::string add_parameter(OnnxLayer& layer) { return repeated(layer, layer.parameter(0)); }
std::string add_constant(OnnxLayer& layer) { return repeated(layer, layer.buffer("value")); }

constexpr OnnxKind kGeneralKinds[] = {
    {"add", [](OnnxLayer& layer) { return add_binary(layer, "Add"); }},
    {"subtract", [](OnnxLayer& layer) { return add_binary(layer, "Sub"); }},
    {"multiply", [](OnnxLayer& layer) { return add_binary(layer, "Mul"); }},
    {"divide", [](OnnxLayer& layer) { return add_binary(layer, "Div"); }},
    {"compare", add_compare},
    {"where", add_where},
    {"parameter", add_parameter},
    {"constant", add_constant},
    {"concat", add_concat},
    {"slice", add_slice},
    {"reshape", add_reshape},
    {"permute", add_permute},
    {"reduce", add_reduce},
    {"gather", add_gather},
};

}  // namespace

std::span<const OnnxKind> onnx_general_kinds() { return kGeneralKinds; }

}  // namespace models
