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
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/replica_exchange.h"

namespace engine {

// Between ranks. `communicator` must not be used otherwise during forward and backward of a
// training step (gradients are exchanged by another one at the same time), and outlives the result.
// Folds by the tree over the ranks: the same bits on all of them.
std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator);

// Statistics of the parts of a cut, as blocks: how many rows, then the values.
class StatisticsTree {
 public:
  // `communicator`, which outlives it, as above; null: one rank.
  StatisticsTree(const TreePartition& cut, backends::Communicator* communicator);
  // `blocks`: of this rank's parts, one after another. The first becomes that of all parts.
  void fold(bool moments, std::span<double> blocks);

 private:
  const TreePartition cut_;
  backends::Communicator* communicator_;
  const int rank_;
  std::vector<double> own_, all_;  // grow in the first step only
};

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

// Between the threads of this rank, one for each of its parts of the cut, and then between ranks.
// A waiting thread releases its slot of `slots` to another one.
class ShardStatistics {
 public:
  ShardStatistics(const TreePartition& cut, backends::Communicator* communicator,
                  ComputeSlots& slots);
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
  StatisticsTree tree_;
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
