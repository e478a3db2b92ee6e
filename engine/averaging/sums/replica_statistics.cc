// Gathers the blocks of all replicas in order, folds them by the tree, and returns the result to
// all.
#include "engine/averaging/sums/replica_statistics.h"

#include <algorithm>

#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/error.h"

namespace engine {
namespace {

// `blocks`: equally long, one after another, in order.
void fold_moments(std::span<double> blocks, std::size_t count) {
  const std::size_t length = blocks.size() / count;
  fold_tree(count, [&](std::size_t into, std::size_t from) {
    merge_moments(blocks.subspan(into * length, length), blocks.subspan(from * length, length));
  });
}

void fold_sums(std::span<double> blocks, std::size_t count) {
  const std::size_t length = blocks.size() / count;
  fold_tree(count, [&](std::size_t into, std::size_t from) {
    add_elements(DType::kF64, blocks.data() + into * length, blocks.data() + from * length, length);
  });
}

class RankStatistics final : public ReplicaExchange {
 public:
  explicit RankStatistics(backends::Communicator& communicator)
      : communicator_(communicator), world_(static_cast<std::size_t>(communicator.world_size())) {}

  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override {
    gather(rows, moments);
    fold_moments(all_, world_);
    return take(moments);
  }

  std::int64_t add(std::int64_t rows, std::span<double> sums) override {
    gather(rows, sums);
    fold_sums(all_, world_);
    return take(sums);
  }

 private:
  void gather(std::int64_t rows, std::span<const double> values) {
    own_.assign(1, static_cast<double>(rows));
    own_.insert(own_.end(), values.begin(), values.end());
    all_.resize(own_.size() * world_);
    communicator_.all_gather(own_.data(), own_.size() * sizeof(double), all_.data());
  }

  // The first block is the result.
  std::int64_t take(std::span<double> values) const {
    std::copy_n(all_.begin() + 1, values.size(), values.begin());
    return static_cast<std::int64_t>(all_[0]);
  }

  backends::Communicator& communicator_;
  const std::size_t world_;
  std::vector<double> own_, all_;  // grow in the first step only
};

}  // namespace

std::unique_ptr<ReplicaExchange> make_rank_statistics(backends::Communicator& communicator) {
  return std::make_unique<RankStatistics>(communicator);
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

ShardStatistics::ShardStatistics(int shards, ComputeSlots& slots, ReplicaExchange* across)
    : slots_(slots), across_(across), contributions_(static_cast<std::size_t>(shards)) {
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
  moments ? fold_moments(blocks_, contributions_.size())
          : fold_sums(blocks_, contributions_.size());
  const std::span<double> result = std::span(blocks_).subspan(1, values);
  rows_ = static_cast<std::int64_t>(blocks_[0]);
  if (across_ != nullptr)
    rows_ = moments ? across_->merge_moments(rows_, result) : across_->add(rows_, result);
  for (const Contribution& contribution : contributions_)
    std::ranges::copy(result, contribution.values.begin());
}

}  // namespace engine
