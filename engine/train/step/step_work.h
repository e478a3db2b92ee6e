// Defines how a rank computes one step, from its samples to new parameters: all at once, in
// micro-batches, or as shards that are the same for every world size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/averaging/math/state_home.h"
#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/replica_exchange.h"
#include "engine/graph/executor.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/step_phases.h"

namespace engine {

// Decides if a step's update may be made: called on every rank when its gradients are final, with
// their norm and the sum of this rank's losses.
using MayUpdate = std::function<bool(double norm, double loss_sum)>;

struct StepRequest {
  const BatchView& batch;                     // this rank's samples
  std::int64_t global_count = 0;              // over all ranks
  std::span<const std::int64_t> counts = {};  // samples of each rank; only for sums on devices
  std::int64_t round = 0;                     // AveragingPolicy::round()
  double scale = 1;                           // factor of the sum of this rank's losses
  double lr = 0, clip_grad = 0;               // clip_grad <= 0: gradients are not clipped
  GradientExchange* exchange = nullptr;   // exchange of the state's gradients in host memory; null:
                                          // they stay as the work leaves them
  const MayUpdate* may_update = nullptr;  // on the CPU; null: the update is always made
};

class StepWork {
 public:
  virtual ~StepWork() = default;

  // Runs forward and backward for this rank's samples: the gradients become those of scale * (sum
  // over samples of the mean over a sample's positions of the loss). Then runs the exchange, which
  // starts during backward, and the optimizer's update. Adds the time to `phases`. On a device it
  // may return before the device has finished.
  virtual void step(const StepRequest& request, StepPhases& phases) = 0;
  // Called after a step() that threw before its update: on a device, if the work was created for it
  // (DeviceWorkOptions::supports_rollback), restores running statistics and counters to those
  // before the step. On the CPU the caller can access and restore them.
  virtual void rollback_step() {}
  // Returns the sums over this rank's samples, of the last step and since the start. May wait for
  // the device.
  virtual StepResults results() = 0;
  // Returns the home of the state that step() changes.
  virtual StateHome& home() = 0;
  // On a device, describes the capture of steps as a graph: "captured from step 3 on", then
  // "captured, 212 nodes"; or why not: "not captured: --cuda-graph off". "" on the CPU.
  virtual std::string graph_text() const { return {}; }
  // Returns true if a capture was attempted and failed: graph_text() contains the reason.
  virtual bool capture_failed() const { return false; }
};

// Works on the CPU: the state is in host memory. `optimizer` is that of the state's parameters. All
// arguments must outlive the work.
struct HostWorkParts {
  const Plan& plan;
  ModelState& state;
  Optimizer& optimizer;
  ThreadPool& threads;
};

// Uses one executor; the batch is divided into `micro_batches` parts whose gradients are added, so
// that activations need the memory of one part: the plan is for ceil(most samples / micro_batches)
// and the pool's threads. Every rank runs all its parts, even empty ones, because layers may
// exchange statistics (`replicas`; null: none).
struct AccumulatedWorkOptions {
  std::int64_t micro_batches = 1;
  std::uint64_t seed = 0;
  ReplicaExchange* replicas = nullptr;
};
std::unique_ptr<StepWork> make_accumulated_work(const HostWorkParts& parts,
                                                const AccumulatedWorkOptions& options);

// The batch of a step is divided into the parts of `cut`, and this rank computes its range of them.
// Each part is like a separate rank, with a replica of the model, one thread (so that the bits do
// not depend on the number of threads), and batch statistics of its own samples. The number of
// concurrent parts is the pool's number of physical threads. Sums over all ranks' parts follow the
// tree of ordered_tree.h: the gradients, which need no StepRequest::exchange, and the loss, which
// results() returns on rank 0 (zero elsewhere, so that the sum over ranks is that of the tree).
// Every rank's running statistics and counters become those of part 0; the others' are discarded.
struct ShardedWorkOptions {
  TreePartition cut;
  std::int64_t micro_batches = 1;  // per shard
  std::uint64_t seed = 0;
  // Communicators of all ranks; null: one rank. The second is for layers that exchange statistics;
  // null: there are none.
  backends::Communicator *gradients = nullptr, *statistics = nullptr;
};
// The plan is for one thread and the maximum number of samples of a shard's micro-batch.
std::unique_ptr<StepWork> make_sharded_work(const HostWorkParts& parts,
                                            const ShardedWorkOptions& options);

}  // namespace engine
