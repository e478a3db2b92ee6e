// How a rank computes its share of one step: all at once, in micro-batches, or as shards that are
// the same for every world.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/core/replica_exchange.h"
#include "engine/graph/executor.h"
#include "engine/train/step_phases.h"

namespace engine {

struct StepRequest {
  const BatchView& batch;         // this rank's samples
  std::int64_t global_count = 0;  // over all ranks
  double scale = 1;               // of the sum of this rank's losses
  double lr = 0, clip_grad = 0;   // of the update; for works that do it themselves
  bool equal_shares = true;       // every rank has as many samples
  bool host_gradients =
      false;  // somebody changes the gradients in host memory between run() and update()
};

class StepWork {
 public:
  virtual ~StepWork() = default;

  // Forward and backward of this rank's samples of a step. The state's gradients become those of
  // scale * (sum over samples of the mean over a sample's positions of the loss). `ready` as
  // Executor::backward has it: called once gradients are final, that is, for the last micro-batch.
  // Adds the seconds of forward and backward to `phases`.
  virtual void run(const StepRequest& request, const std::function<void(std::int64_t)>& ready,
                   StepPhases& phases) = 0;
  // After run(), and after whatever happens to the gradients: the optimizer's step, where the work
  // does it itself. False: the caller does it, on the state.
  virtual bool update() { return false; }
  // Sums over this rank's samples, of the last step and since the beginning. May wait for the
  // device.
  virtual StepResults results() = 0;

  // The rest of the engine uses the state in host memory. If steps work on a copy in device memory,
  // to_host() refreshes the host state and to_device() uploads it. Cheap if there is no copy.
  virtual void to_host() {}
  virtual void to_device() {}
};

// One executor; the batch is cut into `micro_batches` parts whose gradients add up, so that
// activations need the memory of one part: `plan` is for ceil(most samples / micro_batches). Every
// rank runs all its parts, empty ones too, because layers may exchange statistics (`replicas`;
// null: none). All given outlives the result.
struct AccumulatedWorkOptions {
  std::int64_t micro_batches = 1;
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;
};
std::unique_ptr<StepWork> make_accumulated_work(const Plan& plan, ModelState& state,
                                                ThreadPool& threads,
                                                const AccumulatedWorkOptions& options);

// The batch of a step is cut into `shards` parts, and this rank computes parts [first, first +
// own), each like a rank of its own: with a replica of the model, one thread (so that the bits do
// not depend on how many there are), and batch statistics of its own samples. Sums over them follow
// the tree of ordered_tree.h. At most `threads` parts run at once. Running statistics are those of
// part `first`, in `state`; the others' are dropped.
struct ShardedWorkOptions {
  int shards = 8, first = 0, own = 8;
  int threads = 1;
  std::int64_t micro_batches = 1;  // of each shard
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;  // between ranks; null: one rank
};
// `plan` is for one thread and the most samples of a shard's micro-batch. Plan and state outlive
// the result.
std::unique_ptr<StepWork> make_sharded_work(const Plan& plan, ModelState& state,
                                            const ShardedWorkOptions& options);

}  // namespace engine
