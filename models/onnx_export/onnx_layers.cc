// Implements one function per kind of layer.
#include "models/onnx_export/onnx_layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/layers/layers.h"

namespace models {
namespace {

using Ints = std::vector<std::int64_t>;

// Uses one Gemm for [batch, in]; a product and an addition for more dimensions.
std::string add_dense(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const bool bias = layer.parameters() > 1;
  const std::string weight = layer.parameter(0);
  if (layer.input_shape().rank() == 1) {
    std::vector<std::string> inputs{layer.inputs[0], out.weight(weight)};
    if (bias) inputs.push_back(out.weight(layer.parameter(1)));
    return out.add("Gemm", std::move(inputs), {{"transB", std::int64_t{1}}});
  }
  // Tied matrices are stored once, in their owner's layout.
  const auto& nodes = layer.graph.nodes();
  const engine::NodeId owner = layer.graph.parameter_node(layer.id);
  const bool tied = owner != layer.id || std::ranges::any_of(nodes, [&](const auto& node) {
                      return node.owner == owner;
                    });
  const std::string matrix =
      tied ? out.add("Transpose", {out.weight(weight)}, {{"perm", Ints{1, 0}}})
           : out.transposed_weight(weight);
  std::string y = out.add("MatMul", {layer.channels_last(0), matrix});
  if (bias) y = out.add("Add", {y, out.weight(layer.parameter(1))});
  return layer.channels_first(y);
}

// Returns the numbers of an option for each of `count` axes or sides; a single one stands for all.
Ints for_each_of(std::size_t count, Ints values) {
  return values.size() == 1 ? Ints(count, values[0]) : values;
}

AttributeList window_attributes(const OnnxLayer& layer) {
  const auto weights = layer.graph.own_parameters(layer.graph.parameter_node(layer.id));
  const engine::Shape& weight = weights[0].layout.file_shape;
  AttributeList attributes{{"kernel_shape", Ints{weight[2], weight[3]}},
                           {"strides", for_each_of(2, layer.list("stride"))},
                           {"pads", for_each_of(4, layer.list("padding"))}};
  const Ints dilations = layer.list("dilation");
  if (!dilations.empty()) attributes.push_back({"dilations", dilations});
  if (layer.whole("groups") != 1) attributes.push_back({"group", layer.whole("groups")});
  return attributes;
}

std::vector<std::string> input_and_parameters(OnnxLayer& layer) {
  std::vector<std::string> inputs{layer.inputs[0]};
  for (std::size_t i = 0; i < layer.parameters(); ++i)
    inputs.push_back(layer.out.weight(layer.parameter(i)));
  return inputs;
}

std::string add_conv2d(OnnxLayer& layer) {
  return layer.out.add("Conv", input_and_parameters(layer), window_attributes(layer));
}

std::string add_conv_transpose(OnnxLayer& layer) {
  AttributeList attributes = window_attributes(layer);
  attributes.push_back({"output_padding", layer.list("output_padding")});
  return layer.out.add("ConvTranspose", input_and_parameters(layer), std::move(attributes));
}

// Whether the node's output depends on the samples. Nodes follow those that they read.
bool reads_samples(const engine::Graph& graph, engine::NodeId id) {
  std::vector<bool> reads;  // by node
  for (engine::NodeId at = 0; at <= id; ++at) {
    const engine::Graph::Node& node = graph.nodes()[static_cast<std::size_t>(at)];
    reads.push_back(node.layer == nullptr ||
                    std::ranges::any_of(node.inputs, [&](engine::NodeId input) {
                      return reads[static_cast<std::size_t>(input)];
                    }));
  }
  return reads.back();
}

// ONNX's Conv has one weight for all samples.
std::string add_convolve(OnnxLayer& layer) {
  if (reads_samples(layer.graph, layer.node().inputs[1]))
    throw engine::ModelError(layer.graph.describe(layer.id) +
                             ": its weight depends on the samples, which no operator of ONNX "
                             "reads; export the weights alone, as .safetensors or .npz");
  OnnxBuilder& out = layer.out;
  const std::string first =
      out.add("Gather", {layer.inputs[1], out.integer(0)}, {{"axis", std::int64_t{0}}});
  const std::string weight = out.add("Transpose", {first}, {{"perm", Ints{0, 3, 1, 2}}});
  AttributeList attributes{{"strides", layer.list("stride")},
                           {"pads", layer.list("padding")},
                           {"dilations", layer.list("dilation")},
                           {"group", layer.whole("groups")}};
  return out.add("Conv", {layer.inputs[0], weight}, std::move(attributes));
}

// PyTorch's nearest pixel is ONNX's floor of asymmetric places.
std::string add_resize(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const bool linear = layer.option("linear") != 0;
  AttributeList attributes{
      {"mode", std::string(linear ? "linear" : "nearest")},
      {"coordinate_transformation_mode", std::string(linear ? "half_pixel" : "asymmetric")}};
  if (!linear) attributes.push_back({"nearest_mode", std::string("floor")});
  const Ints size = layer.list("size");
  if (size[0] > 0) {
    const engine::Shape& shape = layer.node().shape;
    const std::string batch = out.add(
        "Slice", {out.add("Shape", {layer.inputs[0]}), out.integers({0}), out.integers({1})});
    const std::string sizes = out.add("Concat", {batch, out.integers({shape[2], size[0], size[1]})},
                                      {{"axis", std::int64_t{0}}});
    return out.add("Resize", {layer.inputs[0], "", "", sizes}, attributes);
  }
  std::vector<float> scales{1, 1};
  for (const engine::LayerOption& option : layer.node().layer->traits().options)
    if (option.name == "factor") scales.push_back(static_cast<float>(option.value));
  return out.add("Resize", {layer.inputs[0], "", out.floats(scales, {4})}, attributes);
}

std::string add_pad(OnnxLayer& layer) {
  const Ints s = layer.list("sides");
  return layer.out.add("Pad",
                       {layer.inputs[0], layer.out.integers({0, 0, s[0], s[1], 0, 0, s[2], s[3]}),
                        layer.out.scalar(static_cast<float>(layer.option("value")))});
}

// A parameter of a norm; without parameters, numbers in its place.
std::string weight_or(OnnxLayer& layer, std::size_t index, float number) {
  if (layer.parameters() > 0) return layer.out.weight(layer.parameter(index));
  const std::int64_t width = layer.input_shape().dims().back();
  return layer.out.floats(std::vector<float>(static_cast<std::size_t>(width), number), {width});
}

std::string add_batch_norm2d(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  return out.add(
      "BatchNormalization",
      {layer.inputs[0], weight_or(layer, 0, 1), weight_or(layer, 1, 0),
       out.weight(layer.buffer("running_mean")), out.weight(layer.buffer("running_var"))},
      {{"epsilon", static_cast<float>(layer.option("eps"))}});
}

// Operator set 17 has no group normalization: each group becomes a channel of an instance
// normalization, as in PyTorch's export.
std::string add_group_norm(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const engine::Shape shape = layer.input_shape();
  const std::int64_t groups = layer.whole("groups");
  const auto count = static_cast<std::size_t>(groups);
  const std::string by_group =
      out.add("Reshape", {layer.inputs[0], out.integers({0, groups, shape.count() / groups})});
  const std::string normalized =
      out.add("InstanceNormalization",
              {by_group, out.floats(std::vector<float>(count, 1), {groups}),
               out.floats(std::vector<float>(count, 0), {groups})},
              {{"epsilon", static_cast<float>(layer.option("eps"))}});
  const std::string back =
      out.add("Reshape", {normalized, out.integers({0, shape[2], shape[0], shape[1]})});
  if (layer.parameters() == 0) return back;
  const auto by_channel = [&](std::size_t index) {
    return out.add("Unsqueeze", {out.weight(layer.parameter(index)), out.integers({1, 2})});
  };
  const std::string scaled = out.add("Mul", {back, by_channel(0)});
  return out.add("Add", {scaled, by_channel(1)});
}

// Normalizes over the last dimension, which is the channels for images.
std::string add_layer_norm(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  return layer.channels_first(
      out.add("LayerNormalization",
              {layer.channels_last(0), weight_or(layer, 0, 1), weight_or(layer, 1, 0)},
              {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(layer.option("eps"))}}));
}

std::string add_softmax(OnnxLayer& layer) {
  return layer.channels_first(
      layer.out.add("Softmax", {layer.channels_last(0)}, {{"axis", std::int64_t{-1}}}));
}

std::string add_matmul(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  std::string second = layer.channels_last(1);
  if (layer.option("transpose_second") != 0) {
    Ints order;
    for (int i = 0; i <= layer.input_shape().rank(); ++i) order.push_back(i);
    std::swap(order.end()[-1], order.end()[-2]);
    second = out.add("Transpose", {second}, {{"perm", order}});
  }
  std::string y = out.add("MatMul", {layer.channels_last(0), second});
  const auto scale = static_cast<float>(layer.option("scale"));
  if (scale != 1) y = out.add("Mul", {y, out.scalar(scale)});
  return layer.channels_first(y);
}

std::string add_relu(OnnxLayer& layer) { return layer.out.add("Relu", layer.inputs); }
std::string add_nothing(OnnxLayer& layer) { return layer.inputs[0]; }

// Operator set 20 is the first with Gelu.
std::string add_gelu(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const std::string& x = layer.inputs[0];
  std::string inner;  // 1 + erf(x / sqrt(2)), or 1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))
  if (layer.option("tanh") == 0) {
    const auto scale = static_cast<float>(1 / std::numbers::sqrt2);
    inner = out.add("Erf", {out.add("Mul", {x, out.scalar(scale)})});
  } else {
    const auto scale = static_cast<float>(std::sqrt(2 / std::numbers::pi));
    const std::string square = out.add("Mul", {x, x});
    const std::string cube = out.add("Mul", {out.add("Mul", {square, x}), out.scalar(0.044715F)});
    inner = out.add("Tanh", {out.add("Mul", {out.add("Add", {x, cube}), out.scalar(scale)})});
  }
  const std::string half = out.add("Mul", {x, out.scalar(0.5F)});
  return out.add("Mul", {half, out.add("Add", {inner, out.scalar(1)})});
}

std::string add_flatten(OnnxLayer& layer) {
  if (!layer.takes_images()) return layer.inputs[0];
  return layer.out.add("Flatten", {layer.inputs[0]}, {{"axis", std::int64_t{1}}});
}

std::string add_pad_channels(OnnxLayer& layer) {
  const std::int64_t before = layer.whole("before"), after = layer.whole("after");
  if (before + after == 0) return layer.inputs[0];
  return layer.out.add("Pad",
                       {layer.inputs[0], layer.out.integers({0, before, 0, 0, 0, after, 0, 0})});
}

std::string add_shuffle_channels(OnnxLayer& layer) {
  const engine::Shape& shape = layer.node().shape;
  const std::int64_t groups = layer.whole("groups"), channels = shape.dims().back();
  Ints parts{0, groups, channels / groups}, order{0, 2, 1}, all{0, channels};
  if (layer.takes_images()) {
    parts.insert(parts.end(), {shape[0], shape[1]});
    order.insert(order.end(), {3, 4});
    all.insert(all.end(), {shape[0], shape[1]});
  }
  const std::string grouped =
      layer.out.add("Reshape", {layer.inputs[0], layer.out.integers(parts)});
  const std::string shuffled = layer.out.add("Transpose", {grouped}, {{"perm", order}});
  return layer.out.add("Reshape", {shuffled, layer.out.integers(all)});
}

std::string add_embedding(OnnxLayer& layer) {
  return layer.out.add("Gather", {layer.out.weight(layer.parameter(0)), layer.inputs[0]});
}

constexpr OnnxKind kOnnxKinds[] = {
    {"dense", add_dense},
    {"conv2d", add_conv2d},
    {"conv_transpose", add_conv_transpose},
    {"convolve", add_convolve},
    {"resize", add_resize},
    {"pad", add_pad},
    {"batch_norm2d", add_batch_norm2d},
    {"sync_batch_norm2d", add_batch_norm2d},
    {"group_norm", add_group_norm},
    {"layer_norm", add_layer_norm},
    {"relu", add_relu},
    {"gelu", add_gelu},
    {"dropout", add_nothing},
    {"flatten", add_flatten},
    {"pad_channels", add_pad_channels},
    {"shuffle_channels", add_shuffle_channels},
    {"embedding", add_embedding},
    {"matmul", add_matmul},
    {"softmax", add_softmax},
};

}  // namespace

std::string add_onnx_layer(OnnxLayer& layer) {
  const std::string_view kind = layer.node().layer->kind();
  for (const std::span<const OnnxKind> kinds :
       {std::span<const OnnxKind>(kOnnxKinds), onnx_general_kinds(), onnx_pooling_kinds(),
        onnx_sequence_kinds(), onnx_function_kinds()})
    for (const OnnxKind& known : kinds)
      if (kind == known.kind) return known.add(layer);
  throw engine::ModelError(layer.graph.describe(layer.id) +
                           ": there is no translation of this kind of layer to ONNX; export the "
                           "weights alone, as .safetensors or .npz");
}

}  // namespace models
