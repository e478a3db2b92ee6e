// A graph made ready to run: order, fusions, and one arena in which every tensor has its place.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"

namespace engine {

struct PlanOptions {
  std::int64_t max_batch = 1;  // samples; a run may use fewer, also none
  // Of activations: kF32 or kF64; on a CUDA device kF32, kBF16 or kF16. See stored_dtype().
  DType dtype = DType::kF32;
  int threads = 1;
  Device::Kind device = Device::Kind::kCpu;
  bool training = true;  // false: no gradients, activations are dropped as soon as they are read
  bool fuse = true;      // fold ReLU and additions into the layers that offer it
  Convolutions convolutions = Convolutions::kAuto;  // on the CPU
  Products products = Products::kF32;  // on the CPU: kF32 or kBF16; a device's come with a context
  NodeId watched = -1;  // its output is neither folded away nor written over; -1: no one's
};

// The tensor of the node of the same index. Offsets are bytes into the arena.
struct PlanTensor {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  Shape item_shape;
  DType dtype = DType::kF32;
  int root = -1;  // the tensor whose memory this is: itself, unless its node is an alias
  std::size_t offset = kNone;  // kNone: bound at run time (inputs read in place) or folded away
  std::size_t gradient_offset = kNone;  // kNone: no gradient is needed
};

struct PlanStep {
  NodeId node = -1;  // whose parameters, name and layer these are
  const Layer* layer = nullptr;
  std::vector<int> inputs;  // indices into Plan::tensors
  int output = -1;          // of the last node folded in
  bool relu = false;        // a ReLU folded in
  int residual = -1;        // tensor added before that ReLU; -1: none
  bool backward = false;    // has a share in the gradients
  // It has running statistics, and all its parameters are frozen: ReplicaStatistics::still.
  bool still = false;
  std::size_t saved_offset = 0, saved_bytes = 0;
  std::vector<Write> input_writes;  // how backward writes each input's gradient
  Write residual_write = Write::kOverwrite;
  bool adds_to_parameters =
      false;  // a later step, tied to the same parameters, has written their gradients before
  std::int64_t gradients_complete =
      0;  // elements at the front of the gradient buffer that are final after this
          // step's backward (also when it has none: then its gradients are zero)
};

// What activations and their gradients are stored as: `options.dtype`; but on the CPU, with
// products in bf16, bf16 where all layers of the graph have kernels for that. Throws ModelError
// where the CPU has no such products.
DType stored_dtype(const Graph& graph, const PlanOptions& options);

struct Plan {
  PlanOptions options;
  DType storage = DType::kF32;   // stored_dtype()
  const Graph* graph = nullptr;  // outlives the plan
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> steps;    // forward order; backward runs them from the end
  int logits = -1, loss = -1;     // tensors
  std::vector<int> inputs;        // tensors of the graph's inputs, in order
  std::size_t arena_bytes = 0;    // activations, gradients and saved
  std::size_t scratch_bytes = 0;  // the largest of any step, allocated besides

  // The graph must have its outputs set. Throws ModelError; also for a layer that feeds neither of
  // them.
  static Plan compile(const Graph& graph, const PlanOptions& options);
};

}  // namespace engine
