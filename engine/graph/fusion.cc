// Fusion rules.
//
// ReLU and addition have one operation per element, so as separate steps they would be bound by
// reading and writing memory. Fused into the previous layer, they use values that are still in
// registers, and the tensor between the two needs no memory.
//
// A node P whose only reader is a node Q can absorb Q if P's layer offers it:
//   Q is a ReLU                              P = dense or batch_norm2d    y = relu(P(x))
//   Q is an addition P + z                   P = batch_norm2d             y = P(x) + z
//   Q is such an addition and then a ReLU    P = batch_norm2d             y = relu(P(x) + z)
// The fused step runs at the position of P, so z must be computed before: z precedes P in the order
// of the nodes. z has the shape of the sum. If both operands of an addition could absorb it, only
// the later one does. Outputs of the graph are never fused away. Nodes keep their order, so
// gradients are completed in the order of the graph.
#include "engine/graph/fusion.h"

namespace engine {
namespace {

class Fuser {
 public:
  Fuser(const Graph& graph, NodeId watched)
      : graph_(graph),
        watched_(watched),
        nodes_(graph.nodes()),
        readers_(nodes_.size()),
        folded_(nodes_.size(), false) {
    for (NodeId id = 0; id < count(); ++id)
      for (const NodeId input : node(id).inputs) readers_[index(input)].push_back(id);
  }

  void check_every_layer_is_used() const {
    std::vector<bool> used(nodes_.size(), false);
    used[index(graph_.logits())] = used[index(graph_.loss())] = true;
    for (NodeId id = count() - 1; id >= 0; --id) {
      if (!used[index(id)] && node(id).layer)
        throw ModelError(graph_.describe(id) +
                         " feeds neither the logits nor the loss: connect it or leave it out");
      if (used[index(id)])
        for (const NodeId input : node(id).inputs) used[index(input)] = true;
    }
  }

  FusionResult run(bool fuse) {
    FusionResult result;
    for (NodeId id = 0; id < count(); ++id) {
      const bool alias = node(id).layer && node(id).layer->is_alias(graph_.input_shapes(id));
      result.root.push_back(alias ? result.root[index(node(id).inputs[0])] : id);
      if (!node(id).layer || alias || folded_[index(id)]) continue;
      result.steps.push_back(fuse ? fold_readers(id) : FusedStep{.node = id, .output = id});
    }
    return result;
  }

 private:
  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }
  NodeId count() const { return static_cast<NodeId>(nodes_.size()); }
  const Graph::Node& node(NodeId id) const { return nodes_[index(id)]; }

  // Returns the only node that reads `id` if it is of this kind; otherwise -1.
  NodeId only_reader(NodeId id, std::string_view kind) const {
    if (id == graph_.logits() || id == graph_.loss() || id == watched_ ||
        readers_[index(id)].size() != 1)
      return -1;
    const NodeId reader = readers_[index(id)][0];
    return node(reader).layer->kind() == kind ? reader : -1;
  }

  FusedStep fold_readers(NodeId id) {
    FusedStep step{.node = id, .output = id};
    const Fusions offered = node(id).layer->traits().fusions;
    if (const NodeId sum = offered.residual ? only_reader(id, "add") : -1; sum >= 0) {
      const std::vector<NodeId>& operands = node(sum).inputs;
      const NodeId other = operands[0] == id ? operands[1] : operands[0];
      if (other < id && node(other).shape == node(sum).shape) {
        step.residual = other;
        step.output = sum;
        folded_[index(sum)] = true;
      }
    }
    if (const NodeId relu = offered.relu ? only_reader(step.output, "relu") : -1; relu >= 0) {
      step.relu = true;
      step.output = relu;
      folded_[index(relu)] = true;
    }
    return step;
  }

  const Graph& graph_;
  const NodeId watched_;
  const std::vector<Graph::Node>& nodes_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> folded_;
};

}  // namespace

FusionResult fuse_steps(const Graph& graph, bool fuse, NodeId watched) {
  Fuser fuser(graph, watched);
  fuser.check_every_layer_is_used();
  return fuser.run(fuse);
}

}  // namespace engine
