// Graph: validates each layer when it is added, so that an error is reported at its cause.
#include "engine/graph/graph.h"

#include <algorithm>

#include "engine/core/checked.h"

namespace engine {
namespace {

std::string label(const std::string& name, std::size_t index, const Layer& layer) {
  const std::string who =
      name.empty() ? std::string("#").append(std::to_string(index)) : "'" + name + "'";
  return "layer " + who + " (" + std::string(layer.kind()) + ")";
}

// Checkpoints have array names of at most 4096 bytes, which add the name of a parameter and of a
// state to the layer's. Without this check a run would train, and then fail to save.
void check_length(const std::string& name, const std::string& who) {
  constexpr std::size_t kMaxNameBytes = 4000;
  if (name.size() > kMaxNameBytes)
    throw ModelError(who + ": the name has " + std::to_string(name.size()) +
                     " bytes; expected at most " + std::to_string(kMaxNameBytes));
}

void check_shape(const Shape& shape, const std::string& who) {
  for (const std::int64_t extent : shape.dims())
    if (extent < 1)
      throw ShapeError(who + ": expected extents of at least 1, got " + shape.to_string());
  checked_elements(shape.count(), who + ": " + shape.to_string());
}

Shape checked_shape(const Layer& layer, std::span<const Shape> inputs, const std::string& who) {
  Shape shape;
  try {
    shape = layer.output_shape(inputs);
  } catch (const ShapeError& error) {
    throw ShapeError(who + ": " + error.what());
  }
  check_shape(shape, who);
  return shape;
}

void check_tied(const std::string& who, const std::vector<ParameterSpec>& wanted,
                const std::string& owner, const std::vector<ParameterSpec>& owned) {
  const auto shapes = [](const std::vector<ParameterSpec>& specs) {
    std::string text;
    for (const ParameterSpec& spec : specs)
      text += (text.empty() ? "" : ", ") + spec.name + " " + spec.layout.file_shape.to_string();
    return text.empty() ? std::string("none") : text;
  };
  bool same = wanted.size() == owned.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i)
    same = wanted[i].layout.file_shape == owned[i].layout.file_shape &&
           wanted[i].layout.permutation == owned[i].layout.permutation;
  if (!same)
    throw ModelError(who + ": tied to " + owner + ", expected its parameters (" + shapes(owned) +
                     "), got " + shapes(wanted));
}

}  // namespace

NodeId Graph::input(std::string name, const Shape& item_shape, DType dtype) {
  const std::string who = "input '" + name + "'";
  check_name(name, who);
  check_shape(item_shape, who);
  return push({.name = std::move(name),
               .layer = nullptr,
               .inputs = {},
               .shape = item_shape,
               .dtype = dtype});
}

void Graph::check_name(const std::string& name, const std::string& who) const {
  if (!name.empty() && names_.contains(name))
    throw ModelError(who + ": the name is used twice; names must differ");
}

NodeId Graph::push(Node node) {
  names_.insert(node.name);
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size()) - 1;
}

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  return append(std::move(name), std::move(layer), std::move(inputs), -1);
}

NodeId Graph::add_tied(std::string name, LayerPtr layer, std::vector<NodeId> inputs, NodeId owner) {
  require(layer != nullptr, "a graph node needs a layer");
  const std::string who = label(name, nodes_.size(), *layer);
  if (owner < 0 || owner >= static_cast<NodeId>(nodes_.size()) ||
      (own_parameters(owner).empty() && own_buffers(*this, owner).empty()))
    throw ModelError(who + ": tied to node " + std::to_string(owner) +
                     ", which has no parameters of its own");
  return append(std::move(name), std::move(layer), std::move(inputs), owner);
}

void Graph::use_common_layout(NodeId owner, LayerPtr& layer, const std::vector<Shape>& shapes) {
  const std::vector<ParameterSpec> own = layer->parameters(shapes), owned = own_parameters(owner);
  const auto is_alike = [](const ParameterSpec& a, const ParameterSpec& b) {
    return a.layout.permutation == b.layout.permutation;
  };
  if (own.size() != owned.size() || std::ranges::equal(own, owned, is_alike)) return;
  if (LayerPtr other = layer->in_form(LayerForm::kCommonLayout)) layer = std::move(other);
  for (NodeId id = owner; id < static_cast<NodeId>(nodes_.size()); ++id) {
    Node& node = nodes_[static_cast<std::size_t>(id)];
    LayerPtr other = node.layer && parameter_node(id) == owner
                         ? node.layer->in_form(LayerForm::kCommonLayout)
                         : nullptr;
    if (other) node.layer = std::move(other);
  }
}

NodeId Graph::append(std::string name, LayerPtr layer, std::vector<NodeId> inputs, NodeId owner) {
  require(layer != nullptr, "a graph node needs a layer");
  check_length(name, label("", nodes_.size(), *layer));
  const std::string who = label(name, nodes_.size(), *layer);
  check_name(name, who);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || inputs[i] >= static_cast<NodeId>(nodes_.size()))
      throw ModelError(who + ": input " + std::to_string(i) + " is node " +
                       std::to_string(inputs[i]) + ", but there are " +
                       std::to_string(nodes_.size()) + " nodes so far");
    const Node& from = nodes_[static_cast<std::size_t>(inputs[i])];
    const DType expected = layer->input_dtype(static_cast<int>(i));
    if (from.dtype != expected)
      throw ModelError(who + ": expected " + std::string(to_string(expected)) + " for input " +
                       std::to_string(i) + ", got " + std::string(to_string(from.dtype)) +
                       " from " + describe(inputs[i]));
    shapes.push_back(from.shape);
  }
  const Shape shape = checked_shape(*layer, shapes, who);
  if (owner >= 0) use_common_layout(owner, layer, shapes);
  const std::vector<ParameterSpec> parameters = layer->parameters(shapes);
  for (const ParameterSpec& spec : parameters)
    check_shape(spec.layout.file_shape, who + ": parameter " + spec.name);
  if (owner >= 0) check_tied(who, parameters, describe(owner), own_parameters(owner));
  if (name.empty() && !((owner >= 0 || parameters.empty()) && layer->buffers(shapes).empty()))
    throw ModelError(who + ": a layer with parameters needs a name");
  return push({.name = std::move(name),
               .layer = std::move(layer),
               .inputs = std::move(inputs),
               .shape = shape,
               .dtype = DType::kF32,
               .owner = owner});
}

int Graph::synchronize_statistics() {
  for (Node& node : nodes_) {
    LayerPtr synchronized = node.layer ? node.layer->in_form(LayerForm::kSynchronized) : nullptr;
    if (synchronized) node.layer = std::move(synchronized);
  }
  return layers_that_use_replicas(*this);
}

std::size_t Graph::freeze(const std::function<bool(const std::string&)>& chosen) {
  std::size_t count = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    Node& node = nodes_[static_cast<std::size_t>(id)];
    node.frozen.clear();
    for (const ParameterSpec& spec : own_parameters(id))
      node.frozen.push_back(chosen(node.name + "." + spec.name));
    count += static_cast<std::size_t>(std::count(node.frozen.begin(), node.frozen.end(), true));
  }
  return count;
}

bool Graph::is_frozen(NodeId node, std::size_t index) const {
  const std::vector<bool>& frozen = nodes_.at(static_cast<std::size_t>(node)).frozen;
  return index < frozen.size() && frozen[index];
}

bool Graph::trains(NodeId node) const {
  const NodeId owner = parameter_node(node);
  const std::size_t count = own_parameters(owner).size();
  for (std::size_t i = 0; i < count; ++i)
    if (!is_frozen(owner, i)) return true;
  return false;
}

void Graph::set_outputs(NodeId logits, NodeId loss) {
  for (const NodeId id : {logits, loss})
    if (id < 0 || id >= static_cast<NodeId>(nodes_.size()) ||
        nodes_[static_cast<std::size_t>(id)].layer == nullptr)
      throw ModelError("an output of the graph must be one of its layers, not node " +
                       std::to_string(id));
  logits_ = logits;
  loss_ = loss;
}

std::vector<Shape> Graph::input_shapes(NodeId node) const {
  std::vector<Shape> shapes;
  for (const NodeId input : nodes_.at(static_cast<std::size_t>(node)).inputs)
    shapes.push_back(nodes_[static_cast<std::size_t>(input)].shape);
  return shapes;
}

std::vector<ParameterSpec> Graph::own_parameters(NodeId id) const {
  const Node& node = nodes_.at(static_cast<std::size_t>(id));
  return node.layer && node.owner < 0 ? node.layer->parameters(input_shapes(id))
                                      : std::vector<ParameterSpec>{};
}

std::string Graph::describe(NodeId id) const {
  const Node& node = nodes_.at(static_cast<std::size_t>(id));
  return node.layer ? label(node.name, static_cast<std::size_t>(id), *node.layer)
                    : "input '" + node.name + "'";
}

NodeId buffer_node(const Graph& graph, NodeId node) {
  const NodeId owner = graph.parameter_node(node);
  if (owner == node) return node;
  const auto buffers_of = [&](NodeId id) {
    return graph.nodes()[static_cast<std::size_t>(id)].layer->buffers(graph.input_shapes(id));
  };
  const auto is_same = [](const BufferSpec& a, const BufferSpec& b) {
    return a.name == b.name && a.shape == b.shape && a.counter == b.counter;
  };
  return std::ranges::equal(buffers_of(node), buffers_of(owner), is_same) ? owner : node;
}

std::vector<BufferSpec> own_buffers(const Graph& graph, NodeId node) {
  const Graph::Node& it = graph.nodes().at(static_cast<std::size_t>(node));
  return it.layer && buffer_node(graph, node) == node ? it.layer->buffers(graph.input_shapes(node))
                                                      : std::vector<BufferSpec>{};
}

double forward_flops(const Graph& graph, NodeId node) {
  const Graph::Node& it = graph.nodes().at(static_cast<std::size_t>(node));
  if (!it.layer) return 0;
  const std::string_view kind = it.layer->kind();
  const Shape& out = it.shape;
  const auto outputs = static_cast<double>(out.count());
  // [positions, projection] to [positions, width], by two products of positions x positions
  if (kind == "causal_self_attention") return 2 * static_cast<double>(out[0]) * outputs;
  if (kind == "self_attention") return 4 * static_cast<double>(out[0]) * outputs;
  if (kind == "matmul")
    return 2 * static_cast<double>(graph.input_shapes(node).front().dims().back()) * outputs;
  if (kind == "convolve") {
    const Shape weight = graph.input_shapes(node)[1];
    return 2 * static_cast<double>(weight.count() / weight[0]) * outputs;
  }
  const bool transposed = kind == "conv_transpose";
  if (kind != "conv2d" && kind != "dense" && !transposed) return 0;
  // Each weight is used once at every position of the output: rows and columns, or positions; of a
  // transposed convolution, of the input.
  const Shape of = transposed ? graph.input_shapes(node).front() : out;
  const std::int64_t positions = of.count() / of[of.rank() - 1];
  double flops = 0;
  for (const ParameterSpec& spec : it.layer->parameters(graph.input_shapes(node)))
    if (spec.layout.file_shape.rank() >= 2)
      flops += 2.0 * static_cast<double>(spec.layout.file_shape.count()) *
               static_cast<double>(positions);
  return flops;
}

std::vector<std::string> parameter_names(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id)
    for (const ParameterSpec& spec : graph.own_parameters(id))
      names.push_back(graph.nodes()[static_cast<std::size_t>(id)].name + "." + spec.name);
  return names;
}

int layers_that_use_replicas(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [](const Graph::Node& node) {
    return node.layer && node.layer->traits().uses_replicas;
  }));
}

}  // namespace engine
