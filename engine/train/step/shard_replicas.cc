// Each replica has a stream, which waits for the copies of the state, and for which the model's
// stream waits.
#include "engine/train/step/shard_replicas.h"

#include <utility>

namespace engine {
namespace {

int rank_in(const ShardReplicas::Exchange& exchange) {
  return exchange.in_host_memory == nullptr ? 0 : exchange.in_host_memory->rank();
}

KernelContext on_stream(KernelContext context, void* stream) {
  context.stream = stream;
  return context;
}

// With statistics in host memory, no work on a replica's stream waits for another rank.
DeviceExecutorOptions executor_options(const ShardReplicas::Parts& parts,
                                       const ShardReplicas::Exchange& exchange) {
  DeviceExecutorOptions options = parts.executor;
  if (!exchange.is_on_devices()) options.wait = {};
  return options;
}

}  // namespace

ShardReplicas::Replica::Replica(const Parts& parts, const DeviceExecutorOptions& options)
    : model(ModelState::allocate(*parts.plan.graph, parts.plan.options.dtype,
                                 parts.model.running.device())),
      executor(parts.plan, model, on_stream(parts.context, stream.handle()), options) {}

// With statistics on the devices, one thread at a time enqueues: a capture has one order.
ShardReplicas::ShardReplicas(const Parts& parts, const TreePartition& cut, const Exchange& exchange)
    : model_(parts.model),
      stream_(parts.context.stream),
      slots_(exchange.is_on_devices() ? 1 : cut.count(rank_in(exchange))),
      team_(static_cast<std::size_t>(cut.count(rank_in(exchange))),
            [this](std::size_t shard) { compute(shard); }) {
  const int rank = rank_in(exchange);
  if (exchange.is_on_devices()) {
    const std::vector<std::int64_t> sizes = exchanged_sizes(parts.plan);
    on_devices_ = std::make_unique<DeviceShardStatistics>(
        DeviceShardStatistics::Parts{.cut = cut,
                                     .rank = rank,
                                     .sizes = sizes,
                                     .context = parts.context,
                                     .communicator = exchange.on_devices,
                                     .slots = slots_});
  } else {
    in_host_memory_ = std::make_unique<ShardStatistics>(cut, exchange.in_host_memory, slots_);
  }
  for (int shard = 1; shard < cut.count(rank); ++shard) {
    further_.push_back(std::make_unique<Replica>(parts, executor_options(parts, exchange)));
    further_.back()->executor.set_control(parts.control);
    further_.back()->executor.set_replicas(&exchange_of(shard));
  }
}

ReplicaExchange& ShardReplicas::exchange_of(int shard) {
  return on_devices_ ? on_devices_->of_shard(shard) : in_host_memory_->of_shard(shard);
}

void ShardReplicas::fail(std::exception_ptr why) {
  on_devices_ ? on_devices_->fail(std::move(why)) : in_host_memory_->fail(std::move(why));
}

void ShardReplicas::copy_state(ModelState& to) const {
  const auto copy = [this](const auto& target, const auto& source) {
    if (source.bytes() > 0) cuda::copy_async(target.data(), source.data(), source.bytes(), stream_);
  };
  copy(to.parameters.values, model_.parameters.values);
  copy(to.running, model_.running);
  copy(to.counters, model_.counters);
  copy(to.half, model_.half);
}

void ShardReplicas::run(const std::function<void(std::size_t)>& compute) {
  for (const auto& replica : further_) copy_state(replica->model);
  begin_.record(stream_);
  compute_ = &compute;
  if (on_devices_) on_devices_->restart();  // after a capture that failed
  team_.run();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  for (const auto& replica : further_) replica->end.make_wait(stream_);
}

void ShardReplicas::join_streams() {
  for (const auto& replica : further_) {
    replica->end.record(replica->stream.handle());
    replica->end.make_wait(stream_);
  }
}

void ShardReplicas::fork_streams() {
  begin_.record(stream_);
  for (const auto& replica : further_) begin_.make_wait(replica->stream.handle());
}

void ShardReplicas::compute(std::size_t shard) noexcept {
  slots_.acquire();
  try {
    cuda::use_device(model_.running.device().index);
    if (shard > 0) begin_.make_wait(further_[shard - 1]->stream.handle());
    (*compute_)(shard);
    if (shard > 0) further_[shard - 1]->end.record(further_[shard - 1]->stream.handle());
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    fail(failure_);
  }
  slots_.release();
}

}  // namespace engine
