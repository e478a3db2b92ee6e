// Reads what a layer tells of itself.
#include "models/onnx_export/onnx_layer.h"

#include "engine/core/error.h"

namespace models {

double OnnxLayer::option(const std::string& name) const {
  for (const engine::LayerOption& option : node().layer->traits().options)
    if (option.name == name) return option.value;
  throw engine::Error("internal: " + graph.describe(id) + " does not tell its " + name);
}

std::vector<std::int64_t> OnnxLayer::list(const std::string& name) const {
  std::vector<std::int64_t> values;
  for (const engine::LayerOption& option : node().layer->traits().options)
    if (option.name == name) values.push_back(static_cast<std::int64_t>(option.value));
  return values;
}

std::string OnnxLayer::channels_last(std::size_t index) {
  if (graph.input_shapes(id).at(index).rank() != 3) return inputs.at(index);
  return out.add("Transpose", {inputs.at(index)},
                 {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}});
}

std::string OnnxLayer::channels_first(const std::string& value) {
  if (node().shape.rank() != 3) return value;
  return out.add("Transpose", {value}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
}

std::size_t OnnxLayer::parameters() const {
  return graph.own_parameters(graph.parameter_node(id)).size();
}

std::string OnnxLayer::parameter(std::size_t index) const {
  const engine::NodeId owner = graph.parameter_node(id);
  return graph.nodes()[static_cast<std::size_t>(owner)].name + "." +
         graph.own_parameters(owner).at(index).name;
}

std::string OnnxLayer::buffer(const std::string& name) const {
  return graph.nodes()[static_cast<std::size_t>(engine::buffer_node(graph, id))].name + "." + name;
}

}  // namespace models
