// Graph: checks at the time a layer is added, so that a mistake is reported where it was made.
#include "engine/graph/graph.h"

#include <algorithm>

namespace engine {
namespace {

std::string label(const std::string& name, std::size_t index, const Layer& layer) {
  const std::string who = name.empty() ? "#" + std::to_string(index) : "'" + name + "'";
  return "layer " + who + " (" + std::string(layer.kind()) + ")";
}

void check_name(const std::vector<Graph::Node>& nodes, const std::string& name, const std::string& who) {
  const bool taken = std::any_of(nodes.begin(), nodes.end(), [&](const Graph::Node& node) { return node.name == name; });
  if (!name.empty() && taken) throw ModelError(who + ": the name is used twice; names must differ");
}

}  // namespace

NodeId Graph::input(std::string name, const Shape& item_shape, DType dtype) {
  const std::string who = "input '" + name + "'";
  check_name(nodes_, name, who);
  if (item_shape.count() < 1) throw ShapeError(who + ": expected extents of at least 1, got " + item_shape.to_string());
  nodes_.push_back({.name = std::move(name), .layer = nullptr, .inputs = {}, .shape = item_shape, .dtype = dtype});
  return static_cast<NodeId>(nodes_.size()) - 1;
}

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  require(layer != nullptr, "a graph node needs a layer");
  const std::string who = label(name, nodes_.size(), *layer);
  check_name(nodes_, name, who);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || inputs[i] >= static_cast<NodeId>(nodes_.size()))
      throw ModelError(who + ": input " + std::to_string(i) + " is node " + std::to_string(inputs[i]) + ", but there are " +
                       std::to_string(nodes_.size()) + " nodes so far");
    const Node& from = nodes_[static_cast<std::size_t>(inputs[i])];
    const DType expected = layer->input_dtype(static_cast<int>(i));
    if (from.dtype != expected)
      throw ModelError(who + ": expected " + std::string(to_string(expected)) + " for input " + std::to_string(i) +
                       ", got " + std::string(to_string(from.dtype)) + " from " + describe(inputs[i]));
    shapes.push_back(from.shape);
  }
  Shape shape;
  try {
    shape = layer->output_shape(shapes);
  } catch (const ShapeError& error) {
    throw ShapeError(who + ": " + error.what());
  }
  if (name.empty() && !(layer->parameters(shapes).empty() && layer->buffers(shapes).empty()))
    throw ModelError(who + ": a layer with parameters needs a name");
  nodes_.push_back({.name = std::move(name),
                    .layer = std::move(layer),
                    .inputs = std::move(inputs),
                    .shape = shape,
                    .dtype = DType::kF32});
  return static_cast<NodeId>(nodes_.size()) - 1;
}

int Graph::synchronize_statistics() {
  for (Node& node : nodes_) {
    LayerPtr synchronized = node.layer ? node.layer->synchronized() : nullptr;
    if (synchronized) node.layer = std::move(synchronized);
  }
  return layers_that_use_replicas();
}

int Graph::layers_that_use_replicas() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.layer && node.layer->uses_replicas(); }));
}

void Graph::set_outputs(NodeId logits, NodeId loss) {
  for (const NodeId id : {logits, loss})
    if (id < 0 || id >= static_cast<NodeId>(nodes_.size()) || nodes_[static_cast<std::size_t>(id)].layer == nullptr)
      throw ModelError("an output of the graph must be one of its layers, not node " + std::to_string(id));
  logits_ = logits;
  loss_ = loss;
}

std::vector<Shape> Graph::input_shapes(NodeId node) const {
  std::vector<Shape> shapes;
  for (const NodeId input : nodes_.at(static_cast<std::size_t>(node)).inputs)
    shapes.push_back(nodes_[static_cast<std::size_t>(input)].shape);
  return shapes;
}

std::string Graph::describe(NodeId id) const {
  const Node& node = nodes_.at(static_cast<std::size_t>(id));
  return node.layer ? label(node.name, static_cast<std::size_t>(id), *node.layer) : "input '" + node.name + "'";
}

}  // namespace engine
