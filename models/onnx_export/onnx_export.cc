// Traverses the graph from its input to its logits.
#include "models/onnx_export/onnx_export.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/onnx_export/onnx_builder.h"
#include "models/onnx_export/onnx_layers.h"

namespace models {
namespace {

constexpr const char* kInput = "input";
constexpr const char* kLogits = "logits";

// Returns the nodes that the logits depend on; loss and labels are not among them.
std::vector<bool> needed_nodes(const engine::Graph& graph) {
  std::vector<bool> needed(graph.nodes().size());
  needed.at(static_cast<std::size_t>(graph.logits())) = true;
  for (std::size_t i = needed.size(); i-- > 0;)
    if (needed[i])
      for (const engine::NodeId from : graph.nodes()[i].inputs)
        needed[static_cast<std::size_t>(from)] = true;
  return needed;
}

bool is_token_input(const engine::Graph::Node& input) { return input.dtype == engine::DType::kI32; }
bool is_feature_input(const engine::Graph::Node& input) {
  return input.shape.rank() == 3 && input.shape[0] == 1 && input.shape[1] == 1;
}

// Whether the layers that are needed compute texts of any length: others have extents in them.
bool takes_any_length(const engine::Graph& graph, const std::vector<bool>& needed) {
  constexpr std::string_view kOfEachPosition[] = {
      "embedding",  "position_embedding", "dense",  "layer_norm",
      "rms_norm",   "head_rms_norm",      "rotary", "causal_self_attention",
      "dropout",    "self_attention",     "gelu",   "relu",
      "activation", "scale_shift",        "softmax"};
  for (std::size_t i = 1; i < needed.size(); ++i) {
    if (!needed[i] || !graph.nodes()[i].layer) continue;
    const std::string_view kind = graph.nodes()[i].layer->kind();
    const bool is_elementwise = kind == "add" || kind == "subtract" || kind == "multiply";
    if (!is_elementwise && std::ranges::find(kOfEachPosition, kind) == std::end(kOfEachPosition))
      return false;
  }
  return true;
}

// Returns the dimensions of an item after the batch. Images get PyTorch's order.
std::vector<io::OnnxDimension> dimensions(const engine::Shape& item, bool any_length) {
  if (item.rank() == 3) return {"batch", item[2], item[0], item[1]};
  if (item.rank() == 2 && any_length) return {"batch", "positions", item[1]};
  if (item.rank() == 2) return {"batch", item[0], item[1]};
  return {"batch", item[0]};
}

io::OnnxValue input_of(const engine::Graph::Node& input, bool any_length) {
  if (is_token_input(input) && any_length)
    return {.name = kInput, .type = io::DType::kI64, .shape = {"batch", "positions"}};
  if (is_token_input(input))
    return {.name = kInput, .type = io::DType::kI64, .shape = {"batch", input.shape[0]}};
  if (is_feature_input(input)) return {.name = kInput, .shape = {"batch", input.shape[2]}};
  return {.name = kInput, .shape = dimensions(input.shape, any_length)};
}

std::string add_scaling(OnnxBuilder& out, std::string x, const PixelScaling& pixels) {
  x = out.add("Div", {x, out.scalar(255)});
  const auto channels = static_cast<std::int64_t>(pixels.mean.size());
  if (channels == 0) return x;
  x = out.add("Sub", {x, out.floats(pixels.mean, {1, channels, 1, 1})});
  return out.add("Div", {x, out.floats(pixels.deviation, {1, channels, 1, 1})});
}

// Returns the value that the first layers read.
std::string add_input(OnnxBuilder& out, const engine::Graph::Node& input,
                      const std::optional<PixelScaling>& pixels) {
  out.begin_layer(kInput);
  if (is_token_input(input)) return kInput;
  if (is_feature_input(input))
    return out.add("Reshape", {kInput, out.integers({0, input.shape[2], 1, 1})});
  return pixels ? add_scaling(out, kInput, *pixels) : kInput;
}

void check_pixels(const engine::Graph::Node& input, const PixelScaling& pixels) {
  if (is_token_input(input) || is_feature_input(input))
    throw engine::ModelError("this model reads samples of shape " + input.shape.to_string() +
                             ", which are no images: its input cannot be pixels");
  const auto channels = static_cast<std::size_t>(input.shape[2]);
  if (pixels.deviation.size() != pixels.mean.size() ||
      (!pixels.mean.empty() && pixels.mean.size() != channels))
    throw engine::ModelError("the model reads images of " + std::to_string(channels) +
                             " channels, and there are means of " +
                             std::to_string(pixels.mean.size()));
}

}  // namespace

io::OnnxModel onnx_model(const engine::Graph& graph, std::vector<io::NamedArray> arrays,
                         const std::optional<PixelScaling>& pixels) {
  const std::vector<engine::Graph::Node>& nodes = graph.nodes();
  if (pixels) check_pixels(nodes.at(0), *pixels);
  OnnxBuilder out(std::move(arrays), {kInput, kLogits});
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<std::string> values(nodes.size());
  values[0] = add_input(out, nodes[0], pixels);
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    if (!needed[i]) continue;
    const auto id = static_cast<engine::NodeId>(i);
    if (!nodes[i].layer) throw engine::ModelError("the logits depend on " + graph.describe(id));
    const std::string kind(nodes[i].layer->kind());
    out.begin_layer(nodes[i].name.empty() ? kind + "_" + std::to_string(i) : nodes[i].name);
    OnnxLayer layer{.out = out,
                    .graph = graph,
                    .id = id,
                    .network_input = kInput,
                    .tokens = is_token_input(nodes[0]) ? kInput : "",
                    .inputs = {}};
    for (const engine::NodeId from : nodes[i].inputs)
      layer.inputs.push_back(values[static_cast<std::size_t>(from)]);
    values[i] = add_onnx_layer(layer);
  }
  const auto logits = static_cast<std::size_t>(graph.logits());
  if (values[logits] == kInput) values[logits] = out.add("Identity", {kInput});
  out.rename(values[logits], kLogits);
  const bool any_length = takes_any_length(graph, needed);
  io::OnnxModel model;
  model.inputs = {input_of(nodes[0], any_length)};
  model.outputs = {{.name = kLogits, .shape = dimensions(nodes[logits].shape, any_length)}};
  out.finish(model);
  return model;
}

}  // namespace models
