// A block has the number of rows, then the moments; or sums alone. Blocks lie end to end, those of
// this rank's shards in order.
#include "engine/averaging/shards/device_shard_statistics.h"

#include <algorithm>
#include <utility>

#include "backends/control_word.h"
#include "engine/core/error.h"
#include "engine/ops/replicas/replica_moments.h"

namespace engine {
namespace {

std::size_t bytes_of_values(std::int64_t values) {
  return static_cast<std::size_t>(values) * sizeof(double);
}

std::size_t max_count(const TreePartition& cut) {
  int most = 0;
  for (int rank = 0; rank < cut.world(); ++rank) most = std::max(most, cut.count(rank));
  return static_cast<std::size_t>(most);
}

[[noreturn]] void reject_host_memory() {
  throw Error("internal: statistics of a CUDA device were passed in host memory");
}

}  // namespace

class DeviceShardStatistics::Member final : public ReplicaExchange {
 public:
  Member(DeviceShardStatistics& statistics, std::size_t shard)
      : statistics_(statistics), shard_(shard) {}

  std::int64_t merge_moments(std::int64_t, std::span<double>) override { reject_host_memory(); }
  std::int64_t add(std::int64_t, std::span<double>) override { reject_host_memory(); }

  std::int64_t samples = 0;  // of all shards
  cuda::Event ready;         // the block of this shard is complete

 private:
  std::int64_t exchange_on_device(Kind kind, const ReplicaRows& rows, const TensorView& values,
                                  void* stream) override {
    const bool moments = kind == Kind::kMoments;
    const std::int64_t length = values.count() + (moments ? 1 : 0);
    std::byte* const own = statistics_.own_.data() + shard_ * bytes_of_values(length);
    if (moments) {
      KernelContext context = statistics_.context_;
      context.stream = stream;
      TensorView block = values;
      block.data = own;
      block.shape = {length};
      ops::pack_moments(context, rows.count(), values, block);
    } else {
      cuda::copy_async(own, values.data, values.bytes(), stream);
    }
    ready.record(stream);
    statistics_.meet(moments, values);
    if (shard_ > 0) statistics_.combined_.make_wait(stream);
    cuda::copy_async(values.data, statistics_.result_.data(), values.bytes(), stream);
    return samples * rows.per_sample;
  }

  DeviceShardStatistics& statistics_;
  const std::size_t shard_;
};

DeviceShardStatistics::DeviceShardStatistics(const Parts& parts)
    : cut_(parts.cut),
      rank_(parts.rank),
      context_(parts.context),
      communicator_(parts.communicator),
      slots_(parts.slots),
      max_(max_count(parts.cut)) {
  for (int shard = 0; shard < cut_.count(rank_); ++shard)
    members_.push_back(std::make_unique<Member>(*this, static_cast<std::size_t>(shard)));
  const std::int64_t largest = parts.sizes.empty() ? 0 : *std::ranges::max_element(parts.sizes);
  const std::size_t block = bytes_of_values(1 + largest),
                    ranks = static_cast<std::size_t>(cut_.world());
  own_ = Arena(max_ * block, context_.device, "workspace");
  result_ = Arena(block, context_.device, "workspace");
  if (communicator_ == nullptr) return;
  all_ = Arena(ranks * max_ * block, context_.device, "workspace");
  if (max_ * ranks > static_cast<std::size_t>(cut_.parts()))
    ordered_ = Arena(static_cast<std::size_t>(cut_.parts()) * block, context_.device, "workspace");
  std::vector<backends::ControlWord> calls;
  for (const std::int64_t size : parts.sizes)
    calls.push_back(backends::transfer_word(backends::Operation::kAllGather,
                                            static_cast<std::uint32_t>(calls.size() + 1),
                                            max_ * bytes_of_values(1 + size)));
  communicator_->agree(calls);
}

DeviceShardStatistics::~DeviceShardStatistics() = default;

ReplicaExchange& DeviceShardStatistics::of_shard(int shard) {
  return *members_.at(static_cast<std::size_t>(shard));
}

void DeviceShardStatistics::set_samples(int shard, std::int64_t samples) {
  members_[static_cast<std::size_t>(shard)]->samples = samples;
}

void DeviceShardStatistics::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  changed_.notify_all();
}

void DeviceShardStatistics::restart() {
  const std::lock_guard lock(mutex_);
  failure_ = nullptr;
  arrived_ = 0;
}

void DeviceShardStatistics::cancel() noexcept {
  if (communicator_ != nullptr) backends::cancel(*communicator_);
}

// Returns when the result is enqueued on the stream of the first shard.
void DeviceShardStatistics::meet(bool moments, const TensorView& values) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (++arrived_ == members_.size()) {
    arrived_ = 0;
    try {
      combine(moments, values);
      ++round_;
    } catch (...) {
      failure_ = std::current_exception();
    }
    changed_.notify_all();
    if (failure_) std::rethrow_exception(failure_);
    return;
  }
  const std::uint64_t round = round_;
  slots_.release();
  changed_.wait(lock, [&] { return failure_ || round_ != round; });
  lock.unlock();  // the thread that holds the slot may need the lock to release it
  slots_.acquire();
  lock.lock();
  if (round_ == round) std::rethrow_exception(failure_);  // a completed round has a result
}

// The events order the streams: an event is recorded again only after a later exchange has begun,
// so after all that wait for it.
void DeviceShardStatistics::combine(bool moments, const TensorView& values) {
  void* const stream = context_.stream;
  for (std::size_t shard = 1; shard < members_.size(); ++shard)
    members_[shard]->ready.make_wait(stream);
  const std::int64_t length = values.count() + (moments ? 1 : 0);
  TensorView blocks = values, result = values;
  blocks.data = own_.data();
  blocks.shape = {cut_.parts(), length};
  result.data = result_.data();
  if (communicator_ != nullptr) {
    gather(bytes_of_values(length));
    blocks.data = ordered_.bytes() > 0 ? ordered_.data() : all_.data();
  }
  if (moments)
    ops::merge_moments(context_, blocks, result);
  else
    ops::add_sums(context_, blocks, result);
  combined_.record(stream);
}

// Ranks send equally many blocks, and those with fewer shards some that are not used.
void DeviceShardStatistics::gather(std::size_t bytes) {
  communicator_->all_gather_on(context_.stream, own_.data(), max_ * bytes, all_.data());
  if (ordered_.bytes() == 0) return;
  for (int rank = 0; rank < cut_.world(); ++rank)
    cuda::copy_async(ordered_.data() + static_cast<std::size_t>(cut_.first(rank)) * bytes,
                     all_.data() + static_cast<std::size_t>(rank) * max_ * bytes,
                     static_cast<std::size_t>(cut_.count(rank)) * bytes, context_.stream);
}

}  // namespace engine
