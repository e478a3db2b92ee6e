// Gathers the blocks of all replicas in order, reduces them by the tree, and returns the result to
// all.
#include "engine/averaging/statistics/replica_statistics.h"

#include <algorithm>

#include "engine/core/error.h"

namespace engine {
namespace {

class RankStatistics final : public ReplicaExchange {
 public:
  explicit RankStatistics(backends::Communicator& communicator)
      : tree_({communicator.world_size(), communicator.world_size()}, &communicator) {}

  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override {
    return fold(true, rows, moments);
  }
  std::int64_t add(std::int64_t rows, std::span<double> sums) override {
    return fold(false, rows, sums);
  }

 private:
  std::int64_t fold(bool moments, std::int64_t rows, std::span<double> values) {
    block_.assign(1, static_cast<double>(rows));
    block_.insert(block_.end(), values.begin(), values.end());
    tree_.fold(moments, block_);
    std::copy_n(block_.begin() + 1, values.size(), values.begin());
    return static_cast<std::int64_t>(block_[0]);
  }

  StatisticsTree tree_;
  std::vector<double> block_;  // grows in the first step only
};

}  // namespace

std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator) {
  return std::make_unique<RankStatistics>(communicator);
}

StatisticsTree::StatisticsTree(const TreePartition& cut, backends::Communicator* communicator)
    : cut_(cut),
      communicator_(communicator),
      rank_(communicator == nullptr ? 0 : communicator->rank()) {
  require(cut.world() == (communicator == nullptr ? 1 : communicator->world_size()),
          "statistics over the ranks of another world");
}

void StatisticsTree::fold(bool moments, std::span<double> blocks) {
  const std::size_t length = blocks.size() / static_cast<std::size_t>(cut_.count(rank_));
  const auto combine = [&](double* into, double* from) {
    moments ? merge_moments({into, length}, {from, length})
            : add_elements(DType::kF64, into, from, length);
  };
  const std::span<const TreePartition::Node> nodes = cut_.nodes(rank_);
  const auto own = [&](const TreePartition::Node& node, std::size_t part) {
    return blocks.data() +
           (static_cast<std::size_t>(node.first - cut_.first(rank_)) + part) * length;
  };
  for (const TreePartition::Node& node : nodes)
    reduce_tree(static_cast<std::size_t>(node.count), [&](std::size_t into, std::size_t from) {
      combine(own(node, into), own(node, from));
    });
  if (communicator_ == nullptr) return;
  // Blocks are small: one call with max_nodes() blocks per rank is faster than one call per block.
  const auto each = static_cast<std::size_t>(cut_.max_nodes()) * length;
  own_.resize(each);
  all_.resize(each * static_cast<std::size_t>(cut_.world()));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    std::copy_n(own(nodes[i], 0), length, own_.data() + i * length);
  communicator_->all_gather(own_.data(), each * sizeof(double), all_.data());
  const auto block = [&](const TreePartition::Node& node) {
    return all_.data() + static_cast<std::size_t>(node.rank) * each +
           static_cast<std::size_t>(node.index) * length;
  };
  cut_.fold([&](const TreePartition::Node& into, const TreePartition::Node& from) {
    combine(block(into), block(from));
  });
  std::copy_n(all_.data(), length, blocks.data());
}

class ShardStatistics::Member final : public ReplicaExchange {
 public:
  Member(ShardStatistics& statistics, std::size_t shard) : statistics_(statistics), shard_(shard) {}
  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override {
    return statistics_.exchange(shard_, true, rows, moments);
  }
  std::int64_t add(std::int64_t rows, std::span<double> sums) override {
    return statistics_.exchange(shard_, false, rows, sums);
  }

 private:
  ShardStatistics& statistics_;
  const std::size_t shard_;
};

void ComputeSlots::acquire() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return free_ > 0; });
  --free_;
}

void ComputeSlots::release() {
  {
    const std::lock_guard lock(mutex_);
    ++free_;
  }
  changed_.notify_one();
}

ShardStatistics::ShardStatistics(const TreePartition& cut, backends::Communicator* communicator,
                                 ComputeSlots& slots)
    : slots_(slots),
      tree_(cut, communicator),
      contributions_(
          static_cast<std::size_t>(cut.count(communicator == nullptr ? 0 : communicator->rank()))) {
  for (std::size_t s = 0; s < contributions_.size(); ++s)
    members_.push_back(std::make_unique<Member>(*this, s));
}

ShardStatistics::~ShardStatistics() = default;

ReplicaExchange& ShardStatistics::of_shard(int shard) {
  return *members_.at(static_cast<std::size_t>(shard));
}

void ShardStatistics::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  changed_.notify_all();
}

std::int64_t ShardStatistics::exchange(std::size_t shard, bool moments, std::int64_t rows,
                                       std::span<double> values) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  contributions_[shard] = {rows, values};
  if (++arrived_ == contributions_.size()) {
    arrived_ = 0;
    try {
      combine(moments);
      ++round_;
    } catch (...) {
      failure_ = std::current_exception();
    }
    changed_.notify_all();
    if (failure_) std::rethrow_exception(failure_);
  } else {
    const std::uint64_t round = round_;
    slots_.release();
    changed_.wait(lock, [&] { return failure_ || round_ != round; });
    lock.unlock();  // the thread that holds the slot may need the lock to release it
    slots_.acquire();
    lock.lock();
    if (round_ == round) std::rethrow_exception(failure_);  // a completed round has a result
  }
  return rows_;
}

void ShardStatistics::combine(bool moments) {
  const std::size_t values = contributions_[0].values.size(), length = 1 + values;
  blocks_.resize(length * contributions_.size());
  for (std::size_t s = 0; s < contributions_.size(); ++s) {
    require(contributions_[s].values.size() == values, "shards disagree about what they exchange");
    blocks_[s * length] = static_cast<double>(contributions_[s].rows);
    std::ranges::copy(contributions_[s].values,
                      blocks_.begin() + static_cast<std::ptrdiff_t>(s * length + 1));
  }
  tree_.fold(moments, blocks_);
  const std::span<double> result = std::span(blocks_).subspan(1, values);
  rows_ = static_cast<std::int64_t>(blocks_[0]);
  for (const Contribution& contribution : contributions_)
    std::ranges::copy(result, contribution.values.begin());
}

}  // namespace engine
