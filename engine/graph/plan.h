// Compiles a graph for execution: order, fusions, and one arena with an offset for every tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/memory/recomputation.h"

namespace engine {

struct PlanOptions {
  std::int64_t max_batch = 1;  // samples; a run may use fewer, or none
  // dtype of activations: kF32 or kF64; on a CUDA device also kBF16 or kF16. See stored_dtype().
  DType dtype = DType::kF32;
  int threads = 1;
  Device::Kind device = Device::Kind::kCpu;
  bool training = true;  // false: no gradients, and activations are discarded after their last read
  bool fuse = true;      // fuses ReLU and additions into layers that offer it
  Convolutions convolutions = Convolutions::kAuto;  // on the CPU
  Products products = Products::kF32;  // on the CPU: kF32 or kBF16; a device's come from its
                                       // context
  NodeId watched = -1;                 // its output is neither fused away nor overwritten; -1: none
  // An inference plan that extends texts (extends_texts()): positions of a text per call. Its
  // memory is for that number of rows, and it has no loss. 0: samples are whole.
  std::int64_t positions = 0;
  // In that plan on the CPU, how layers store the packed copy of weights that they read: kF32, with
  // the same results as without it, or kBF16, which rounds weights and halves the bytes that are
  // read.
  DType packed = DType::kF32;
  // For training: bytes that activations and scratch may have. If they need more, the plan keeps
  // fewer activations and backward computes the others again (recomputation.h), with the fewest
  // operations that it finds; if no plan fits, it is the smallest one. 0: no limit.
  std::size_t memory_limit = 0;
};

// Whether a model can compute the next positions of a text alone: it reads token ids [context] and
// gives logits [context, classes], and each layer before these extends texts.
bool extends_texts(const Graph& graph);

// The tensor of the node with the same index. Offsets are bytes in the arena.
struct PlanTensor {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  Shape item_shape;
  DType dtype = DType::kF32;
  int root = -1;  // the tensor that owns the memory: itself, unless its node is an alias
  std::size_t offset = kNone;  // kNone: bound at run time (inputs read in place) or fused away
  std::size_t gradient_offset = kNone;  // kNone: no gradient is needed
};

struct PlanStep {
  NodeId node = -1;  // the node whose parameters, name and layer the step has
  const Layer* layer = nullptr;
  std::vector<int> inputs;  // indices into Plan::tensors
  int output = -1;          // tensor of the last fused node
  bool relu = false;        // a fused ReLU
  int residual = -1;        // tensor added before that ReLU; -1: none
  bool backward = false;    // takes part in backward
  // The layer has running statistics, and all its parameters are frozen: ReplicaStatistics::still.
  bool still = false;
  std::size_t saved_offset = 0, saved_bytes = 0;
  // The step's forward runs again before backward reads what it computes.
  bool repeats = false;
  // Before this step's backward, the steps from this one to itself that repeat run forward again;
  // -1: none.
  int repeats_from = -1;
  // In plans that extend texts, the same of LayerMemory.
  std::size_t kept_per_position = 0, packed = 0;
  std::vector<Write> input_writes;  // how backward writes each input's gradient
  Write residual_write = Write::kOverwrite;
  bool adds_to_parameters =
      false;  // a later step, tied to the same parameters, writes their gradients first
  std::int64_t gradients_complete =
      0;  // elements at the front of the gradient buffer that are final after this step's backward
          // (also if it has none: then its gradients are zero)
};

// The storage type of activations and their gradients: `options.dtype`; but on the CPU with
// products in bf16, it is bf16 if all layers of the graph have kernels for that. Throws ModelError
// if the CPU does not support such products.
DType stored_dtype(const Graph& graph, const PlanOptions& options);

struct Recomputation {
  std::vector<PlanSegment> segments;  // in order
  int steps = 0;                      // that run forward again
  std::size_t kept_bytes = 0;         // of values that forward leaves to backward
  std::size_t repeated_bytes = 0;     // of values that backward computes again
  double added_flops = 0;             // as a part of those of forward and backward
};

struct Plan {
  PlanOptions options;
  DType storage = DType::kF32;   // stored_dtype()
  const Graph* graph = nullptr;  // must outlive the plan
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> steps;    // forward order; backward runs them from the end
  int logits = -1, loss = -1;     // indices of tensors
  std::vector<int> inputs;        // tensors of the graph's inputs, in order
  std::size_t arena_bytes = 0;    // for activations, gradients and saved values
  std::size_t scratch_bytes = 0;  // the maximum over all steps, allocated separately
  Recomputation recomputation;

  // The graph must have its outputs set. Throws ModelError; also for a layer that is used by
  // neither of them.
  static Plan compile(const Graph& graph, const PlanOptions& options);
};

// Visits the roots of the tensors that a step reads in forward: inputs and residual.
template <class Visit>
void for_each_read(const Plan& plan, const PlanStep& step, Visit visit) {
  const auto root = [&](int i) { return plan.tensors[static_cast<std::size_t>(i)].root; };
  if (step.residual >= 0) visit(root(step.residual));
  for (const int input : step.inputs) visit(root(input));
}

// The numbers that layers exchange with other replicas in forward, two per channel for each layer
// that does (LayerTraits::uses_replicas), in forward order.
std::vector<std::int64_t> exchanged_sizes(const Plan& plan);

// Bytes for the gradients of frozen parameters that one step's backward writes, although nothing
// reads them: the maximum over all steps.
std::size_t unwanted_bytes(const Plan& plan);

}  // namespace engine
