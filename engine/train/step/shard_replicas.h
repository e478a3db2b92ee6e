// Replicas of a model on a CUDA device whose layers exchange statistics: they compute the shards of
// a rank at the same time.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/cuda.h"
#include "engine/graph/device_executor.h"
#include "engine/train/step/shard_team.h"

namespace engine {

class ShardReplicas {
 public:
  struct Parts {
    const Plan& plan;
    ModelState& model;  // of the first shard; on the device
    const KernelContext& context;
    const DeviceExecutorOptions& executor;
    const StepControl* control;  // in device memory
  };
  // One for each shard of this rank; the first one is the model itself, with an executor of the
  // caller's. `communicator` as in ShardStatistics.
  ShardReplicas(const Parts& parts, const TreePartition& cut, backends::Communicator* communicator);

  // For the executor of the first shard.
  ReplicaExchange& first_exchange() { return statistics_.of_shard(0); }
  DeviceExecutor& executor(std::size_t shard) { return further_[shard - 1]->executor; }
  const ModelState& model(std::size_t shard) const { return further_[shard - 1]->model; }

  // Gives all replicas the state of the model, and calls compute(shard) for each, the first one on
  // the calling thread. Later work on the stream of the model sees the results. Rethrows the first
  // exception.
  void run(const std::function<void(std::size_t shard)>& compute);

 private:
  struct Replica {
    explicit Replica(const Parts& parts);
    ModelState model;
    cuda::Stream stream;
    DeviceExecutor executor;
    cuda::Event end;
  };
  void copy_state(ModelState& to) const;
  void compute(std::size_t shard) noexcept;

  ModelState& model_;
  void* const stream_;  // of the model
  ComputeSlots slots_;
  ShardStatistics statistics_;
  std::vector<std::unique_ptr<Replica>> further_;
  cuda::Event begin_;
  const std::function<void(std::size_t)>* compute_ = nullptr;  // of the step
  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by the mutex
  ShardTeam team_;              // its threads use all other members
};

}  // namespace engine
