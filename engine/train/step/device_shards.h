// Computes the shards of a step on a CUDA device (ShardedWorkOptions), and adds their gradients in
// the order of the tree.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
#include "engine/averaging/shards/device_tree.h"
#include "engine/averaging/shards/node_sum.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/graph/device_executor.h"
#include "engine/train/step/device_copies.h"
#include "engine/train/step/shard_replicas.h"
#include "engine/train/step/step_work.h"

namespace engine {

struct DeviceShardsOptions {
  TreePartition cut;
  // Communicators of all ranks, in host memory; null: one rank. The second is for layers that
  // exchange statistics.
  backends::Communicator *gradients = nullptr, *statistics = nullptr;
  backends::DeviceCommunicator* devices = nullptr;  // sums on the devices; null: in host memory
  // Exchanges statistics on the devices, beside `devices`; null: in host memory, except for one
  // rank.
  backends::DeviceCommunicator* device_statistics = nullptr;
  int rank() const { return gradients == nullptr ? 0 : gradients->rank(); }
};

// Shards are computed one after another, all by the same executor with the memory of one shard. If
// layers exchange statistics, shards have to run at the same time, each with a replica of the
// model.
class DeviceShards {
 public:
  // `parts`: of the rank's executor; must outlive this object. `captured`: steps may be captured.
  DeviceShards(const DeviceShardsOptions& options, const ShardReplicas::Parts& parts,
               std::int64_t micro_batches, bool captured);

  // Returns the exchange for the rank's executor; null if no layer exchanges statistics.
  ReplicaExchange* exchange() { return replicas_ ? &replicas_->first_exchange() : nullptr; }
  // Returns true if layers wait for the stream.
  bool waits_in_layers() const { return replicas_ && !replicas_->exchanges_on_devices(); }
  // Ends what waits for other ranks' statistics, after a failure.
  void cancel() noexcept {
    if (replicas_) replicas_->cancel();
  }
  // Returns why the work of a step cannot be captured as one graph, "" if it can be. The same on
  // all ranks.
  std::string obstacle() const;
  // Returns the slots of the rank's executor for captured steps.
  int slots() const;

  // Returns the sum over the nodes of all ranks; null for one rank. It is valid as long as this.
  std::unique_ptr<DeviceGradientSum> make_sum(const ModelState& mirror) const;

  struct Step {
    const StepRequest& request;
    const StepNumbers& numbers;
    DeviceExecutor& executor;
    KernelContext& context;
    // The slots of all micro-batches of all shards, in order, until release(). Empty: each
    // micro-batch is staged before its forward and released after its backward.
    std::span<const int> slots = {};
  };
  // Copies all micro-batches of a step to the device, for a step that is captured. Executors have
  // slots() slots. Returns Step::slots, valid until the next call.
  std::span<const int> stage(const Step& step);
  // Returns the number of the graph that has these slots.
  int graph_of(std::span<const int> slots) const;
  // Returns the slot of the rank's executor whose numbers the update reads.
  int last_slot(std::span<const int> slots) const;
  // Releases all slots but the last one.
  void release(const Step& step);
  // Enqueues forward and backward of this rank's shards. Afterwards the nodes of the tree are
  // complete, for one rank the gradients. Returns the last slot of the executor, not released.
  int run(const Step& step, StepPhases& phases);

  // The executor's results become those of all shards: download() before its results(), complete()
  // after.
  void download(void* stream);
  void complete(StepResults& results);

 private:
  std::int64_t batches_at_once() const;  // of an executor, in a captured step
  DeviceExecutor& executor(const Step& step, int shard);
  // Returns the last slot, not released.
  int compute(const Step& step, int shard, StepPhases& phases);
  int run_sequentially(const Step& step, StepPhases& phases);
  int run_at_once(const Step& step, StepPhases& phases);
  void add(const Step& step, int shard, const DeviceExecutor& executor,
           const FlatBuffer& gradients);
  std::int64_t samples_of_all(const StepRequest& request, std::int64_t m) const;
  BatchView part(const StepRequest& request, int shard, std::int64_t m) const;
  std::size_t offset_of(int rank, int shard) const;  // in the totals

  const DeviceShardsOptions options_;
  const int rank_, count_;  // shards of this rank
  const std::int64_t micro_batches_;
  ModelState& model_;
  DeviceTree tree_;
  StateBackup running_, counters_;  // of the first shard of all, until the others are computed
  Arena totals_;                    // ops::BatchTotals, for each rank as many as most have
  cuda::PinnedMemory here_;         // the same in host memory
  std::unique_ptr<ShardReplicas> replicas_;  // null: shards are computed one after another
  std::vector<int> slots_;                   // the step that was staged last
};

// Returns the slots of an executor of `rank` for captured steps with the shards of `cut`: all
// batches of a step, while those of the next one are copied. With `in_turn` one executor has all
// shards, else each has one. Too many are never captured (DeviceShards::obstacle()), and need
// DeviceExecutorOptions::slots.
int graph_slots(const TreePartition& cut, int rank, std::int64_t micro_batches, bool in_turn);

}  // namespace engine
