// How a rank computes one step, from its samples to new parameters: all at once, in micro-batches,
// or as shards that are the same for every world.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/replica_exchange.h"
#include "engine/core/state_home.h"
#include "engine/graph/executor.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/step_phases.h"

namespace engine {

// Whether a step's update may be done: asked on every rank when its gradients are final, with their
// norm and the sum of this rank's losses.
using MayUpdate = std::function<bool(double norm, double loss_sum)>;

struct StepRequest {
  const BatchView& batch;         // this rank's samples
  std::int64_t global_count = 0;  // over all ranks
  bool equal_shares = true;       // every rank has as many of them
  double scale = 1;               // of the sum of this rank's losses
  double lr = 0, clip_grad = 0;   // clip_grad <= 0: gradients are not clipped
  GradientExchange* exchange =
      nullptr;  // of the state's gradients in host memory; null: they stay as the work leaves them
  const MayUpdate* may_update = nullptr;  // on the CPU; null: it always may
};

class StepWork {
 public:
  virtual ~StepWork() = default;

  // Forward and backward of this rank's samples: the gradients become those of scale * (sum over
  // samples of the mean over a sample's positions of the loss). Then the exchange, which begins
  // while backward runs, and the optimizer's update. Adds to `phases` where the time went. On a
  // device it may return before the device has done all this.
  virtual void step(const StepRequest& request, StepPhases& phases) = 0;
  // After a step() that threw before its update: on a device, where the work was made for it
  // (DeviceWorkOptions::supports_rollback), running statistics and counters are those before the
  // step again. On the CPU they are in the caller's reach.
  virtual void rollback_step() {}
  // Sums over this rank's samples, of the last step and since the beginning. May wait for the
  // device.
  virtual StepResults results() = 0;
  // Where the state lives that step() changes.
  virtual StateHome& home() = 0;
  // On a device, whether steps are captured as a graph: "captured from step 3 on", then "captured,
  // 212 nodes"; or why not: "not captured: --cuda-graph off". "" on the CPU.
  virtual std::string graph_text() const { return {}; }
  // A capture has been tried and has failed: graph_text() says why.
  virtual bool capture_failed() const { return false; }
};

// Works on the CPU: the state is in host memory. `optimizer` is that of the state's parameters. All
// that is given outlives the work.
struct HostWorkParts {
  const Plan& plan;
  ModelState& state;
  Optimizer& optimizer;
  ThreadPool& threads;
};

// One executor; the batch is cut into `micro_batches` parts whose gradients add up, so that
// activations need the memory of one part: the plan is for ceil(most samples / micro_batches) and
// the pool's threads. Every rank runs all its parts, empty ones too, because layers may exchange
// statistics (`replicas`; null: none).
struct AccumulatedWorkOptions {
  std::int64_t micro_batches = 1;
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;
};
std::unique_ptr<StepWork> make_accumulated_work(const HostWorkParts& parts,
                                                const AccumulatedWorkOptions& options);

// The batch of a step is cut into the parts of `cut`, and this rank computes its run of them, each
// like a rank of its own: with a replica of the model, one thread (so that the bits do not depend
// on how many there are), and batch statistics of its own samples. As many parts run at once as the
// pool has physical threads. Sums over all ranks' parts follow the tree of ordered_tree.h: the
// gradients, which no StepRequest::exchange is needed for, and the loss, which results() has on
// rank 0 (nothing elsewhere, so that the sum over ranks is that of the tree). Every rank's running
// statistics and counters become those of part 0; the others' are dropped.
struct ShardedWorkOptions {
  TreePartition cut;
  std::int64_t micro_batches = 1;  // of each shard
  std::uint64_t seed = 0;
  // Of all ranks; null: one rank. The second is for layers that exchange statistics; null: none do.
  backends::Communicator *gradients = nullptr, *statistics = nullptr;
};
// The plan is for one thread and the most samples of a shard's micro-batch.
std::unique_ptr<StepWork> make_sharded_work(const HostWorkParts& parts,
                                            const ShardedWorkOptions& options);

}  // namespace engine
