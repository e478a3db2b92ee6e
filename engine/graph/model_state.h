// The complete state of a model: parameters with their gradients, running statistics, counters, and
// their names in model order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "engine/graph/graph.h"

namespace engine {

// The parameters of a graph in the order in which every plan of it completes their gradients: from
// the last node to the first (plans keep the order of the nodes), within a node in the order of its
// layer. Tied parameters are at the position of their owner, the first node that uses them and so
// the last in backward. Frozen parameters (Graph::freeze) follow all others, in the same order.
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
  struct Entry {  // one entry of PyTorch's state_dict
    std::string name;
    Kind kind;
    std::size_t slot;          // in parameters.values, running or counters
    bool is_constant = false;  // of kind kRunning, but training never changes it

    bool is_statistic() const { return kind == Kind::kRunning && !is_constant; }
  };

  ParameterBuffer parameters;  // in the order in which backward completes the gradients
  FlatBuffer running;          // running statistics, in the compute dtype
  FlatBuffer counters;         // i64
  Arena half;  // on a CUDA device with bf16 or f16 activations: a copy of the values in that dtype,
               // with the slots of `values`
  DType half_dtype = DType::kF32;  // dtype of `half`; f32: there is no copy
  std::vector<Entry> entries;      // model order: for each node its parameters, then its buffers

  // Allocates zero-filled memory for the graph's state. `compute` is PlanOptions::dtype; the state
  // itself is in state_dtype(compute). For inference alone it needs no gradients. `source` provides
  // the gradients' memory (see FlatBuffer).
  static ModelState allocate(const Graph& graph, DType compute, Device device = {},
                             bool gradients = true, const MemorySource* source = nullptr);
  // Draws each parameter's initial values from its own stream, and sets buffers to their initial
  // values. Depends only on (graph, seed): f64 has exactly the f32 values. Parameters that `wants`
  // does not name keep their values: drawing takes longer than reading a file.
  using Wants = std::function<bool(const std::string& parameter)>;
  void initialize(const Graph& graph, std::uint64_t seed, const Wants& wants = {});
  static bool nothing(const std::string&) { return false; }  // for a state that is read as a whole

  TensorView view(const Entry& entry) const;  // in memory shape
  TensorView half_view(
      const Entry& entry) const;  // REQUIRES: a parameter, and half_dtype is not f32
  TensorView half_flat() const;   // everything as one row; absent if there is no copy
  const TensorLayout& layout(const Entry& entry) const;
  std::int64_t parameter_count() const;  // without gaps
};

}  // namespace engine
