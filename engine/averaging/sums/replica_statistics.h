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

// Between ranks. `communicator` is used by nobody else meanwhile (forward and backward of a
// training step; the gradients travel by another one at the same time), and outlives it. Folds by
// the tree over the ranks: the same bits on all of them.
std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator);

// How many threads may compute at once. Not std::counting_semaphore: those of libstdc++ (bug 98033)
// and of older libc++ lose wake-ups.
class Places {
 public:
  explicit Places(int count) : free_(count) {}
  void acquire();
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
};

// Between `shards` threads of this rank, and then between ranks through `across` (null: one rank).
// A thread that waits gives its place among the computing ones, `places`, to another.
class ShardStatistics {
 public:
  ShardStatistics(int shards, Places& places, ReplicaExchange* across);
  ~ShardStatistics();

  ReplicaExchange& of_shard(int shard);
  // A shard will not come any more: all that wait or come throw `why`. No further use.
  void fail(std::exception_ptr why);

 private:
  class Member;
  struct Visit {
    std::int64_t rows = 0;
    std::span<double> values;
  };
  std::int64_t meet(std::size_t shard, bool moments, std::int64_t rows, std::span<double> values);
  void combine(bool moments);

  Places& places_;
  ReplicaExchange* across_;
  std::vector<std::unique_ptr<Member>> members_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Visit> visits_;
  std::vector<double> blocks_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::int64_t rows_ = 0;  // of all replicas, of the last round
  std::exception_ptr failure_;
};

}  // namespace engine
