// What a training takes of the host's memory, by its plan, before any of it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "backends/group.h"
#include "engine/graph/plan.h"
#include "engine/optim/optimizer_spec.h"
#include "io/data/sources/dataset.h"

namespace tools {

struct MemoryBudget {
  std::uint64_t bytes = 0;  // for all these ranks; 0: not known, and nothing is refused
  int ranks = 1;            // of this host
};
// What is available now, to be asked before data are loaded. Every rank of a host asks at about the
// same time.
MemoryBudget memory_budget(const backends::Group& group);

struct MemoryNeed {  // bytes, of one rank
  std::uint64_t activations = 0, parameters = 0, gradients = 0, optimizer = 0, batches = 0,
                data = 0;
  std::uint64_t total() const {
    return activations + parameters + gradients + optimizer + batches + data;
  }
};

std::uint64_t data_bytes(const io::DatasetSplits& splits);

struct MemoryPlanOptions {
  engine::DType state = engine::DType::kF32;  // of parameters
  std::size_t optimizer_states = 0;
  int optimizer_ranks = 1;        // of which each has a share of them
  int optimizer_rank = 0;         // this one of these
  bool whole_tensors = false;     // are such a share, and not elements
  std::size_t averages = 0;       // of the parameters
  int shards = 1;                 // of this rank, each with its own activations and gradients
  std::int64_t batches = 1;       // kept ready by the loader
  std::int64_t sample_bytes = 0;  // of a prepared sample
  std::uint64_t data = 0;
};
// For batches of `batch` samples of each shard.
MemoryNeed memory_need(const engine::Graph& graph, const engine::PlanOptions& plan,
                       std::int64_t batch, const MemoryPlanOptions& options);

// Throws engine::MemoryError where the ranks need more than the budget: what for, and the largest
// --batch-size-per-device that would fit.
void check_memory(const engine::Graph& graph, const engine::PlanOptions& plan,
                  const MemoryPlanOptions& options, const MemoryBudget& budget);

}  // namespace tools
