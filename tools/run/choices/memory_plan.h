// Computes, from its plan, the memory that a training needs before any of it is allocated: on the
// host, or on the CUDA device that it computes on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/graph/plan.h"
#include "engine/optim/optimizer_spec.h"
#include "io/data/dataset/splits.h"
#include "tools/options/table/device_request.h"

namespace tools {

struct MemoryBudget {
  std::uint64_t bytes = 0;         // for all these ranks; 0: not known, and nothing is refused
  int ranks = 1;                   // of this host
  std::optional<int> device = {};  // the CUDA device whose memory it is; none: the host's
  std::uint64_t total = 0;         // of that device; what is not free is in use already: by its
                                   // driver, NCCL's communicators and other programs
  std::uint64_t in_use() const { return total - bytes; }
  std::uint64_t of_rank() const {
    return bytes / static_cast<std::uint64_t>(ranks < 1 ? 1 : ranks);
  }
  // For choices of the program: libraries and drivers also allocate.
  std::uint64_t nine_tenths_of_rank() const { return of_rank() / 10 * 9; }
};
// Returns the memory that is available now; call it before data are loaded. Every rank of a host
// calls it at about the same time.
MemoryBudget memory_budget(const backends::Group& group);
// Returns the memory of a CUDA device for one rank; the device becomes the calling thread's. Throws
// engine::cuda::CudaError.
MemoryBudget device_memory_budget(int device);

struct RankLimit {
  std::uint64_t bytes = 0;      // 0: none
  std::uint64_t requested = 0;  // by --memory SIZE or as nine tenths; may differ from what is free
};
// Returns the limit of a rank by --memory: the given size, or what is free if that is less. With
// auto it is nine tenths of what is free, or all of it if the smallest plan needs more. `need`
// returns the bytes of the plan for a limit.
RankLimit rank_limit(const MemoryRequest& request, const MemoryBudget& budget,
                     const std::function<std::uint64_t(std::uint64_t limit)>& need);

struct MemoryNeed {  // in bytes, for one rank
  std::uint64_t activations = 0, parameters = 0, gradients = 0, optimizer = 0, batches = 0,
                data = 0, evaluation = 0,  // with its own model, on a device
      averaging = 0, saving = 0,           // the copy of the state that is written to checkpoints
      average = 0;  // the pass that recomputes an average's statistics; its model, on a device
  std::uint64_t saving_in_host = 0;  // the copy for steps on a device; not part of total()
  std::uint64_t total() const {
    return activations + parameters + gradients + optimizer + batches + data + evaluation +
           averaging + saving + average;
  }
};

std::uint64_t data_bytes(const io::DatasetSplits& splits);

std::uint64_t gradient_bytes(const engine::Graph& graph, engine::DType state);

// The copy of the state for checkpoints; none without parameters.
struct SavedStates {
  int parameters = 0;    // models in it
  int optimizers = 0;    // optimizer states in it, or shares of one
  bool in_host = false;  // it is not in the memory that is planned: steps run on a device
};

struct OptimizerShare {
  int ranks = 1;               // that share the optimizer state
  int rank = 0;                // index of this rank among them
  bool whole_tensors = false;  // a share consists of whole tensors, not elements
};

struct MemoryPlanOptions {
  engine::DType state = engine::DType::kF32;  // type of parameters
  std::vector<engine::OptimizerState> optimizer_states = {};
  decltype(engine::OptimizerSpec::workspace_bytes) optimizer_workspace = nullptr;
  OptimizerShare optimizer_share = {};
  std::size_t averages = 0;       // number of averages of the parameters
  std::size_t averaging = 0;      // bytes that the averaging keeps for each trained parameter
  SavedStates saved = {};         // of this rank
  int shards = 1;                 // this rank's shards
  bool in_turn = false;           // of its shards: one after another, with the memory of one;
                                  // otherwise each has its own state and activations
  std::uint64_t sums = 0;         // bytes beside the gradients for their sums
  std::size_t short_weights = 0;  // bytes of each weight's copy in a short type; 0: none
  std::int64_t micro_batches = 1;
  std::int64_t evaluation = 0;    // samples per forward pass; 0: it has no memory of its own
  bool statistics = false;        // those of an average are recomputed at the end
  std::int64_t batches = 1;       // kept ready by the loader, or on the device for a step
  std::int64_t sample_bytes = 0;  // per prepared sample
  std::uint64_t data = 0;
  // Bytes that the rank may use; 0: no limit. The plan recomputes activations to stay below it.
  std::uint64_t limit = 0;
  bool limit_is_hard = false;  // the user gave it, and so much is free

  int shards_at_once() const { return in_turn ? 1 : shards; }
};
// Returns the plan for batches of `batch` samples that leaves the rest of the limit to what is not
// activations.
engine::PlanOptions limited_plan(const engine::Graph& graph, const engine::PlanOptions& plan,
                                 std::int64_t batch, const MemoryPlanOptions& options);
// Returns the need for batches of `batch` samples in each shard.
MemoryNeed memory_need(const engine::Graph& graph, const engine::PlanOptions& plan,
                       std::int64_t batch, const MemoryPlanOptions& options);

// Throws io::ConfigError if this rank needs more than a hard limit, and engine::MemoryError if the
// ranks need more than the budget, of the host or a device. The
// error lists the needs, and the largest --batch-size-per-device that would fit, or --memory auto
// if that would make this batch fit.
void check_memory(const engine::Graph& graph, const engine::PlanOptions& plan,
                  const MemoryPlanOptions& options, const MemoryBudget& budget);

// Returns the largest --batch-size-per-device that fits the limit. REQUIRES: there is one.
std::int64_t largest_batch(const engine::Graph& graph, const engine::PlanOptions& plan,
                           const MemoryPlanOptions& options);

// Returns advice if a device refused an allocation although the plan had fitted: "at most
// --batch-size-per-device N would fit" into `bytes`, or an alternative.
std::string batch_advice(const engine::Graph& graph, const engine::PlanOptions& plan,
                         const MemoryPlanOptions& options, std::uint64_t bytes);

}  // namespace tools
