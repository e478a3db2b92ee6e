// Everything a model remembers: parameters with their gradients, running statistics, counters; and
// its names in model order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "engine/graph/graph.h"

namespace engine {

// The parameters of a graph in the order in which every plan of it completes their gradients: from
// the last node to the first (plans keep the order of the nodes), within a node as its layer lists
// them. Tied parameters stand at their owner, the first node that uses them and so the last in
// backward. Behind all of these stand frozen parameters (Graph::freeze), in the same order.
struct OrderedParameter {
  NodeId node;
  int index;  // in the layer's parameters()
  NamedLayout layout;
  Initializer initializer;
  bool frozen = false;
};
std::vector<OrderedParameter> completion_order(const Graph& graph, DType dtype);

struct ModelState {
  enum class Kind { kParameter, kRunning, kCounter };
  struct Entry {  // one line of PyTorch's state_dict
    std::string name;
    Kind kind;
    std::size_t slot;  // in parameters.values, running or counters
  };

  ParameterBuffer parameters;  // in the order in which backward completes the gradients
  FlatBuffer running;          // running statistics, in the compute dtype
  FlatBuffer counters;         // i64
  Arena half;  // on a CUDA device, where activations are bf16 or f16: the values as such, slots as
               // in `values`
  DType half_dtype = DType::kF32;  // of `half`; f32: there is none
  std::vector<Entry> entries;      // model order: per node its parameters, then its buffers

  // Zero-filled memory for the graph's state. Allocates.
  // `compute` as PlanOptions::dtype has it; the state itself is in state_dtype(compute).
  // For inference alone it needs no gradients. `source`: of the gradients' memory (FlatBuffer).
  static ModelState allocate(const Graph& graph, DType compute, Device device = {},
                             bool gradients = true, const MemorySource* source = nullptr);
  // Initial values by each parameter's own stream; buffers to their initial values. Depends on
  // (graph, seed) only: f64 holds exactly the f32 values.
  void initialize(const Graph& graph, std::uint64_t seed);

  TensorView view(const Entry& entry) const;  // in memory shape
  TensorView half_view(
      const Entry& entry) const;  // REQUIRES: a parameter, and half_dtype is not f32
  TensorView half_flat() const;   // all of it, as one row; absent where there is none
  const TensorLayout& layout(const Entry& entry) const;
  std::int64_t parameter_count() const;  // without gaps
};

}  // namespace engine
