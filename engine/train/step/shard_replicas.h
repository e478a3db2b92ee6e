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
#include "backends/device_communicator.h"
#include "engine/averaging/shards/device_shard_statistics.h"
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
  // How the shards of all ranks exchange statistics: as in ShardStatistics, or on the devices.
  struct Exchange {
    backends::Communicator* in_host_memory = nullptr;    // null: one rank
    backends::DeviceCommunicator* on_devices = nullptr;  // replaces the other one
    // Returns true if statistics do not pass through host memory.
    bool is_on_devices() const { return on_devices != nullptr || in_host_memory == nullptr; }
  };
  // One for each shard of this rank; the first one is the model itself, with an executor of the
  // caller's.
  ShardReplicas(const Parts& parts, const TreePartition& cut, const Exchange& exchange);

  // For the executor of the first shard.
  ReplicaExchange& first_exchange() { return exchange_of(0); }
  bool exchanges_on_devices() const { return on_devices_ != nullptr; }
  // Called by each shard before a micro-batch: the samples of all shards in it.
  void set_samples(int shard, std::int64_t samples) {
    if (on_devices_) on_devices_->set_samples(shard, samples);
  }
  // Ends what waits for other ranks, after a failure.
  void cancel() noexcept {
    if (on_devices_) on_devices_->cancel();
  }
  DeviceExecutor& executor(std::size_t shard) { return further_[shard - 1]->executor; }
  const ModelState& model(std::size_t shard) const { return further_[shard - 1]->model; }

  // Gives all replicas the state of the model, and calls compute(shard) for each, the first one on
  // the calling thread. Later work on the stream of the model sees the results. Rethrows the first
  // exception.
  void run(const std::function<void(std::size_t shard)>& compute);
  // For steps that are captured, whose work is then all on the stream of the model: orders it after
  // the work on the replicas' streams, and work that follows there after it.
  void join_streams();
  void fork_streams();

 private:
  struct Replica {
    Replica(const Parts& parts, const DeviceExecutorOptions& options);
    ModelState model;
    cuda::Stream stream;
    DeviceExecutor executor;
    cuda::Event end;
  };
  ReplicaExchange& exchange_of(int shard);
  void fail(std::exception_ptr why);
  void copy_state(ModelState& to) const;
  void compute(std::size_t shard) noexcept;

  ModelState& model_;
  void* const stream_;  // of the model
  ComputeSlots slots_;
  std::unique_ptr<ShardStatistics> in_host_memory_;    // one of them
  std::unique_ptr<DeviceShardStatistics> on_devices_;  // is not null
  std::vector<std::unique_ptr<Replica>> further_;
  cuda::Event begin_;
  const std::function<void(std::size_t)>* compute_ = nullptr;  // of the step
  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by the mutex
  ShardTeam team_;              // its threads use all other members
};

}  // namespace engine
