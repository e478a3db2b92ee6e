// A model as a directed acyclic graph of named layers. It has only structure: no memory, no batch
// size, no device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/layers/layer.h"

namespace engine {

using NodeId = int;

class Graph {
 public:
  struct Node {
    std::string name;  // "layer1.0"; parameters are "layer1.0.weight". Unique; may be "" (unnamed)
                       // without parameters
    LayerPtr layer;    // null for inputs
    std::vector<NodeId> inputs;
    Shape shape;        // shape of one item
    DType dtype;        // kF32 stands for the compute dtype; kI32 for labels and token ids
    NodeId owner = -1;  // the node whose parameters this node's layer uses; -1: its own
    std::vector<bool> frozen = {};  // which of its own parameters are not trained; empty: none
  };

  NodeId input(std::string name, const Shape& item_shape, DType dtype = DType::kF32);
  // Infers the shape. Throws ShapeError "layer 'fc' (dense): expected ..., got ..." and ModelError
  // for a name that is already used, an input that does not exist or has the wrong dtype, and a
  // layer with parameters or buffers but no name. The shape and those of the parameters have
  // extents of at least 1 and at most kMaxElements elements (checked.h).
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);

  // Adds a layer that uses the parameters of an earlier node, which must have the shapes that it
  // needs (tied weights), and the buffers of that node if it has the same ones. The gradients of
  // both uses are added; the state lists the parameters once, under the owner's name. Layers of one
  // kind with different layouts of their parameters get LayerForm::kCommonLayout. Throws as
  // add() does, and ModelError if the shapes differ or the owner has no parameters or buffers of
  // its own.
  NodeId add_tied(std::string name, LayerPtr layer, std::vector<NodeId> inputs, NodeId owner);

  // Replaces every layer that has a synchronized form by it; returns the number of layers that
  // now use statistics of all replicas. Must be called before the first plan.
  int synchronize_statistics();

  // Freezes the parameters whose names ("layer1.0.weight") are `chosen`: they have no gradients,
  // and no update changes them. Must be called before the first plan or state. Returns the number
  // of frozen parameters.
  std::size_t freeze(const std::function<bool(const std::string&)>& chosen);
  bool is_frozen(NodeId node, std::size_t index) const;  // of own_parameters()
  bool trains(NodeId node) const;  // whether a parameter that its layer uses is trained

  // Sets the tensor that predictions are read from, and the per-sample loss from which backward
  // starts.
  void set_outputs(NodeId logits, NodeId loss);

  const std::vector<Node>& nodes() const {
    return nodes_;
  }  // in the order of addition, which is a topological order and the model order of the state
  std::vector<Shape> input_shapes(NodeId node) const;  // item shapes of the node's inputs
  std::string describe(
      NodeId node) const;  // "layer 'fc' (dense)", "layer #7 (relu)", "input 'images'"

  // Returns the node whose parameters the layer of `node` uses: itself, unless it is tied to
  // another.
  NodeId parameter_node(NodeId node) const {
    const NodeId owner = nodes_.at(static_cast<std::size_t>(node)).owner;
    return owner < 0 ? node : owner;
  }
  // The node's own contribution to the model's state, which is empty if it is tied.
  std::vector<ParameterSpec> own_parameters(NodeId node) const;

  NodeId logits() const { return logits_; }
  NodeId loss() const { return loss_; }

 private:
  void use_common_layout(NodeId owner, LayerPtr& layer, const std::vector<Shape>& shapes);
  NodeId append(std::string name, LayerPtr layer, std::vector<NodeId> inputs, NodeId owner);
  void check_name(const std::string& name, const std::string& who) const;
  NodeId push(Node node);

  std::vector<Node> nodes_;
  std::unordered_set<std::string> names_;  // the names of nodes_
  NodeId logits_ = -1, loss_ = -1;
};

// Returns the floating-point operations of one sample's forward pass through this node: those of
// the products of convolutions, dense layers, matmul and attention (causal: half of each product of
// all positions), where a multiplication and an addition are two; 0 for other kinds, which are
// bound by memory.
double forward_flops(const Graph& graph, NodeId node);

// Returns the node whose buffers, e.g. running statistics, the layer of `node` uses: itself, unless
// it is tied to a node with the same ones.
NodeId buffer_node(const Graph& graph, NodeId node);
// The node's own contribution to the buffers of the model's state.
std::vector<BufferSpec> own_buffers(const Graph& graph, NodeId node);

// Names of all parameters, in model order.
std::vector<std::string> parameter_names(const Graph& graph);
int layers_that_use_replicas(const Graph& graph);

}  // namespace engine
