// A model as a directed acyclic graph of named layers. Wiring only: no memory, no batch size, no device.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer.h"

namespace engine {

using NodeId = int;

class Graph {
 public:
  struct Node {
    std::string name;  // "layer1.0"; parameters are "layer1.0.weight". Unique; without parameters also "" (unnamed)
    LayerPtr layer;    // null for inputs
    std::vector<NodeId> inputs;
    Shape shape;       // of one item
    DType dtype;       // kF32 stands for the compute dtype; kI32 for labels and token ids
  };

  NodeId input(std::string name, const Shape& item_shape, DType dtype = DType::kF32);
  // Infers the shape. Throws ShapeError "layer 'fc' (dense): expected ..., got ..." and ModelError for a name used twice,
  // an input that is not there or has the wrong dtype, and a layer with parameters or buffers but no name.
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);

  // Replaces every layer that has a synchronized() form by it; returns how many now use statistics of all replicas.
  // Before the first plan.
  int synchronize_statistics();
  int layers_that_use_replicas() const;

  // The tensor that predictions are read from, and the per-sample loss that training starts backward at.
  void set_outputs(NodeId logits, NodeId loss);

  const std::vector<Node>& nodes() const { return nodes_; }  // in the order added, which is a topological order and
                                                             // the model order of the state
  std::vector<Shape> input_shapes(NodeId node) const;        // item shapes of what the node reads
  std::string describe(NodeId node) const;                   // "layer 'fc' (dense)", "layer #7 (relu)", "input 'images'"

  NodeId logits() const { return logits_; }
  NodeId loss() const { return loss_; }

 private:
  std::vector<Node> nodes_;
  NodeId logits_ = -1, loss_ = -1;
};

}  // namespace engine
