// Each replica has a stream, which waits for the copies of the state, and for which the model's
// stream waits.
#include "engine/train/step/shard_replicas.h"

#include <utility>

namespace engine {
namespace {

int rank_in(backends::Communicator* communicator) {
  return communicator == nullptr ? 0 : communicator->rank();
}

KernelContext on_stream(KernelContext context, void* stream) {
  context.stream = stream;
  return context;
}

// No work on a replica's stream waits for another rank.
DeviceExecutorOptions without_deadline(DeviceExecutorOptions options) {
  options.wait = {};
  return options;
}

}  // namespace

ShardReplicas::Replica::Replica(const Parts& parts)
    : model(ModelState::allocate(*parts.plan.graph, parts.plan.options.dtype,
                                 parts.model.running.device())),
      executor(parts.plan, model, on_stream(parts.context, stream.handle()),
               without_deadline(parts.executor)) {}

ShardReplicas::ShardReplicas(const Parts& parts, const TreePartition& cut,
                             backends::Communicator* communicator)
    : model_(parts.model),
      stream_(parts.context.stream),
      slots_(cut.count(rank_in(communicator))),
      statistics_(cut, communicator, slots_),
      team_(static_cast<std::size_t>(cut.count(rank_in(communicator))),
            [this](std::size_t shard) { compute(shard); }) {
  for (int shard = 1; shard < cut.count(rank_in(communicator)); ++shard) {
    further_.push_back(std::make_unique<Replica>(parts));
    further_.back()->executor.set_control(parts.control);
    further_.back()->executor.set_replicas(&statistics_.of_shard(shard));
  }
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
  team_.run();
  if (failure_) std::rethrow_exception(failure_);
  for (const auto& replica : further_) replica->end.make_wait(stream_);
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
    statistics_.fail(failure_);
  }
  slots_.release();
}

}  // namespace engine
