// Computes statistics over all replicas: between ranks, and between the shards of one rank.
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

// Computes statistics between ranks. `communicator` must outlive the result and must not be used
// otherwise during forward and backward of a training step (another communicator exchanges the
// gradients at the same time). Reduces by the tree over the ranks, so all get the same bits.
std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator);

// Reduces statistics of the parts of a cut, as blocks: the number of rows, then the values.
class StatisticsTree {
 public:
  // `communicator` must outlive this, with the restrictions above; null: one rank.
  StatisticsTree(const TreePartition& cut, backends::Communicator* communicator);
  // `blocks` holds the blocks of this rank's parts in order. The first becomes that of all parts.
  void fold(bool moments, std::span<double> blocks);

 private:
  const TreePartition cut_;
  backends::Communicator* communicator_;
  const int rank_;
  std::vector<double> own_, all_;  // grow only in the first step
};

// Limits the number of threads that compute at the same time. std::counting_semaphore is not used:
// that of libstdc++ (bug 98033) and of older libc++ loses wake-ups.
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

// Computes statistics between the threads of this rank, one for each of its parts of the cut, and
// then between ranks. A waiting thread releases its slot of `slots` to another one.
class ShardStatistics {
 public:
  ShardStatistics(const TreePartition& cut, backends::Communicator* communicator,
                  ComputeSlots& slots);
  ~ShardStatistics();

  ReplicaExchange& of_shard(int shard);
  // Reports that a shard has failed: all waiting and later calls throw `why`.
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

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Contribution> contributions_;
  std::vector<double> blocks_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::int64_t rows_ = 0;  // rows of all replicas in the last round
  std::exception_ptr failure_;
};

}  // namespace engine
