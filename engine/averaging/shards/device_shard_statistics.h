// Exchanges the statistics of layers between the shards of all ranks in the memory of CUDA devices,
// in canonical order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/device_communicator.h"
#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/replica_exchange.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Each shard of this rank computes on a stream and a thread of its own. In an exchange the threads
// wait for each other, but not for the device: the last one enqueues, on the stream of the first
// shard, one all-gather of the shards' blocks and kernels that reduce those of all ranks by the
// tree. So it can be captured, and all ranks get the bits of ShardStatistics.
class DeviceShardStatistics {
 public:
  struct Parts {
    const TreePartition& cut;
    int rank = 0;
    std::span<const std::int64_t> sizes;  // of the layers that exchange, in forward order
    const KernelContext& context;         // of the first shard
    // As that of DeviceStatistics; null: one rank. Must outlive the statistics.
    backends::DeviceCommunicator* communicator = nullptr;
    ComputeSlots& slots;  // a waiting thread releases its slot to another one
  };
  // Collective if there is a communicator: the ranks compare the sizes.
  explicit DeviceShardStatistics(const Parts& parts);
  ~DeviceShardStatistics();

  ReplicaExchange& of_shard(int shard);
  // REQUIRES: called by each shard before a micro-batch, with the samples of all shards in it.
  void set_samples(int shard, std::int64_t samples);
  // Reports that a shard has failed: all waiting and later calls throw `why`, until restart().
  void fail(std::exception_ptr why);
  // REQUIRES: no shard computes.
  void restart();
  // Ends what waits for other ranks, after a failure.
  void cancel() noexcept;

 private:
  class Member;
  void meet(bool moments, const TensorView& values);
  void combine(bool moments, const TensorView& values);
  void gather(std::size_t bytes);

  const TreePartition cut_;
  const int rank_;
  KernelContext context_;
  backends::DeviceCommunicator* const communicator_;
  ComputeSlots& slots_;
  std::size_t max_ = 0;  // shards of a rank
  Arena own_, all_, ordered_, result_;
  std::vector<std::unique_ptr<Member>> members_;
  cuda::Event combined_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::exception_ptr failure_;
};

}  // namespace engine
