// Traverses the graph twice, from the inputs and from the logits.
#include "engine/graph/parameter_kinds.h"

#include <algorithm>

namespace engine {
namespace {

std::size_t at(NodeId node) { return static_cast<std::size_t>(node); }

bool has_matrix(const Graph& graph, NodeId node) {
  return std::ranges::any_of(
      graph.own_parameters(graph.parameter_node(node)),
      [](const ParameterSpec& p) { return p.layout.file_shape.rank() >= 2; });
}

// A tensor that every sample gets is learned as the positions' are, not as a matrix of a product.
bool is_embedding(const Layer& layer) {
  return layer.kind() == "embedding" || layer.kind() == "position_embedding" ||
         layer.kind() == "parameter";
}

bool is_norm(const Layer& layer) {
  return layer.kind().ends_with("_norm") || layer.kind().ends_with("_norm2d");
}

bool is_of(ParameterKind kind, const Layer& layer, const ParameterSpec& parameter) {
  switch (kind) {
    case ParameterKind::kNorm:
      return is_norm(layer);
    case ParameterKind::kBias:
      return parameter.name == "bias" || parameter.name.ends_with(".bias") ||
             parameter.name.ends_with("_bias");
    case ParameterKind::kEmbedding:
      return is_embedding(layer);
  }
  return false;
}

}  // namespace

std::vector<std::string> hidden_matrices(const Graph& graph) {
  const std::vector<Graph::Node>& nodes = graph.nodes();
  const auto count = static_cast<NodeId>(nodes.size());
  std::vector<bool> matrix(nodes.size()), first(nodes.size()), last(nodes.size()),
      outer(nodes.size());
  for (NodeId n = 0; n < count; ++n) {
    matrix[at(n)] = nodes[at(n)].layer != nullptr && has_matrix(graph, n);
    first[at(n)] = nodes[at(n)].layer == nullptr ||
                   std::ranges::any_of(nodes[at(n)].inputs,
                                       [&](NodeId i) { return first[at(i)] && !matrix[at(i)]; });
  }
  last[at(graph.logits())] = true;
  for (NodeId n = count - 1; n >= 0; --n)
    if (last[at(n)] && !matrix[at(n)])
      for (const NodeId i : nodes[at(n)].inputs) last[at(i)] = true;
  for (NodeId n = 0; n < count; ++n)
    if (matrix[at(n)] && (first[at(n)] || last[at(n)] || is_embedding(*nodes[at(n)].layer)))
      outer[at(graph.parameter_node(n))] = true;

  std::vector<std::string> names;
  for (NodeId n = 0; n < count; ++n) {
    if (nodes[at(n)].layer == nullptr || outer[at(n)]) continue;
    for (const ParameterSpec& p : graph.own_parameters(n))
      if (p.layout.file_shape.rank() >= 2) names.push_back(nodes[at(n)].name + "." + p.name);
  }
  return names;
}

std::vector<std::string> parameters_of(const Graph& graph, ParameterKind kind) {
  std::vector<std::string> names;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
    const Graph::Node& node = graph.nodes()[at(n)];
    if (node.layer == nullptr) continue;
    for (const ParameterSpec& p : graph.own_parameters(n))
      if (is_of(kind, *node.layer, p)) names.push_back(node.name + "." + p.name);
  }
  return names;
}

}  // namespace engine
