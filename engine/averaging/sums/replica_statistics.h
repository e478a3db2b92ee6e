// Statistics over all replicas: between ranks, and between the shards that one rank computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/replica_exchange.h"

namespace engine {

// Between ranks. `communicator` must not be used otherwise during forward and backward of a
// training step (gradients are exchanged by another one at the same time), and outlives the result.
// Folds by the tree over the ranks: the same bits on all of them.
std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator);

// Limits the number of threads that compute at the same time. Not std::counting_semaphore: those of
// libstdc++ (bug 98033) and of older libc++ lose wake-ups.
class ComputeSlots {
 public:
  explicit ComputeSlots(int count) : free_(count) {}
  void acquire();
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
};

// Between `shards` threads of this rank, and then between ranks through `across` (null: one rank).
// A waiting thread releases its slot of `slots` to another one.
class ShardStatistics {
 public:
  ShardStatistics(int shards, ComputeSlots& slots, ReplicaExchange* across);
  ~ShardStatistics();

  ReplicaExchange& of_shard(int shard);
  // A shard has failed: all waiting and later calls throw `why`.
  void fail(std::exception_ptr why);

 private:
  class Member;
  struct Contribution {
    std::int64_t rows = 0;
    std::span<double> values;
  };
  std::int64_t exchange(std::size_t shard, bool moments, std::int64_t rows,
                        std::span<double> values);
  void combine(bool moments);

  ComputeSlots& slots_;
  ReplicaExchange* across_;
  std::vector<std::unique_ptr<Member>> members_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Contribution> contributions_;
  std::vector<double> blocks_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::int64_t rows_ = 0;  // of all replicas, of the last round
  std::exception_ptr failure_;
};

}  // namespace engine
