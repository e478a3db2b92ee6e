// How a rank computes its share of one step: all at once, in micro-batches, or as shards that are the same for every world.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/core/replica_exchange.h"
#include "engine/graph/executor.h"
#include "engine/train/step_phases.h"

namespace engine {

class StepWork {
 public:
  virtual ~StepWork() = default;

  // Forward and backward of this rank's samples of a step that has `global_count` over all ranks. The state's gradients become
  // those of scale * (sum over samples of the mean over a sample's positions of the loss). `ready` as Executor::backward has it:
  // called once gradients are final, that is, for the last micro-batch. Adds the seconds of forward and backward to `phases`.
  // Returns sums over the rank's samples.
  virtual BatchResult run(const BatchView& batch, std::int64_t global_count, double scale,
                          const std::function<void(std::int64_t)>& ready, StepPhases& phases) = 0;
};

// One executor; the batch is cut into `micro_batches` parts whose gradients add up, so that activations need the memory of one
// part: `plan` is for ceil(most samples / micro_batches). Every rank runs all its parts, empty ones too, because layers may
// exchange statistics (`replicas`; null: none). All given outlives the result.
struct AccumulatedWorkOptions {
  std::int64_t micro_batches = 1;
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;
};
std::unique_ptr<StepWork> make_accumulated_work(const Plan& plan, ModelState& state, ThreadPool& threads,
                                                const AccumulatedWorkOptions& options);

// The batch of a step is cut into `shards` parts, and this rank computes parts [first, first + own), each like a rank of its
// own: with a replica of the model, one thread (so that the bits do not depend on how many there are), and batch statistics of
// its own samples. Sums over them follow the tree of ordered_tree.h. At most `threads` parts run at once.
// Running statistics are those of part `first`, in `state`; the others' are dropped.
struct ShardedWorkOptions {
  int shards = 8, first = 0, own = 8;
  int threads = 1;
  std::int64_t micro_batches = 1;  // of each shard
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;  // between ranks; null: one rank
};
// `plan` is for one thread and the most samples of a shard's micro-batch. Plan and state outlive the result.
std::unique_ptr<StepWork> make_sharded_work(const Plan& plan, ModelState& state, const ShardedWorkOptions& options);

}  // namespace engine
