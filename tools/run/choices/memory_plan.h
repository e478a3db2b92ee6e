// What a training takes of memory, by its plan, before any of it is taken: of the host's, or of the
// CUDA device that it computes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/graph/plan.h"
#include "engine/optim/optimizer_spec.h"
#include "io/data/dataset/splits.h"

namespace tools {

struct MemoryBudget {
  std::uint64_t bytes = 0;         // for all these ranks; 0: not known, and nothing is refused
  int ranks = 1;                   // of this host
  std::optional<int> device = {};  // the CUDA device whose memory it is; none: the host's
};
// What is available now, to be asked before data are loaded. Every rank of a host asks at about the
// same time.
MemoryBudget memory_budget(const backends::Group& group);
// Of a CUDA device, for one rank; the calling thread's from now on. Throws engine::cuda::CudaError.
MemoryBudget device_memory_budget(int device);

struct MemoryNeed {  // bytes, of one rank
  std::uint64_t activations = 0, parameters = 0, gradients = 0, optimizer = 0, batches = 0,
                data = 0, evaluation = 0;  // evaluation: with a model of its own, on a device
  std::uint64_t total() const {
    return activations + parameters + gradients + optimizer + batches + data + evaluation;
  }
};

std::uint64_t data_bytes(const io::DatasetSplits& splits);

struct MemoryPlanOptions {
  engine::DType state = engine::DType::kF32;  // of parameters
  std::vector<engine::OptimizerState> optimizer_states = {};
  int optimizer_ranks = 1;        // of which each has a share of them
  int optimizer_rank = 0;         // this one of these
  bool whole_tensors = false;     // are such a share, and not elements
  std::size_t averages = 0;       // of the parameters
  int shards = 1;                 // of this rank, each with its own activations and gradients
  std::size_t short_weights = 0;  // bytes of each weight's copy in a short type; 0: none
  std::int64_t micro_batches = 1;
  std::int64_t evaluation = 0;    // samples a forward pass; 0: it has no memory of its own
  std::int64_t batches = 1;       // kept ready by the loader, or on their way to the device
  std::int64_t sample_bytes = 0;  // of a prepared sample
  std::uint64_t data = 0;
};
// For batches of `batch` samples of each shard.
MemoryNeed memory_need(const engine::Graph& graph, const engine::PlanOptions& plan,
                       std::int64_t batch, const MemoryPlanOptions& options);

// Throws engine::MemoryError where the ranks need more than the budget: what for, and the largest
// --batch-size-per-device that would fit. Also where the budget is a device's.
void check_memory(const engine::Graph& graph, const engine::PlanOptions& plan,
                  const MemoryPlanOptions& options, const MemoryBudget& budget);

// What to do where memory of a device was refused although the plan had room for it: "at most
// --batch-size-per-device N would fit" into `bytes`, or what else.
std::string batch_advice(const engine::Graph& graph, const engine::PlanOptions& plan,
                         const MemoryPlanOptions& options, std::uint64_t bytes);

}  // namespace tools
