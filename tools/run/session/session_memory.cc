// Derives plans and their memory from a training's options.
#include "tools/run/session/session_memory.h"

#include <algorithm>
#include <string>

#include "engine/core/error.h"
#include "engine/graph/device_executor.h"
#include "engine/ops/images/prepare_images.h"
#include "engine/optim/optimizer.h"
#include "engine/train/evaluator.h"
#include "engine/train/step/loaded_batch.h"
#include "io/gpu/device_memory.h"

namespace tools {
namespace {

// Returns the bytes of a sample in both buffers of DeviceExecutor: on its way to the device, or
// there.
std::int64_t device_sample_bytes(const Compute& compute, const io::Dataset& dataset) {
  constexpr std::int64_t kNumber = sizeof(float);  // labels and tokens have the same size
  const std::int64_t values = dataset.sample_count();
  const bool bytes = engine::sends_bytes(dataset, compute.device);
  const std::int64_t sent =
      (bytes ? values + static_cast<std::int64_t>(sizeof(engine::ops::ImageDraw))
             : kNumber * values) +
      kNumber * dataset.positions() + static_cast<std::int64_t>(sizeof(std::int64_t));
  const bool prepared = bytes && compute.storage == engine::DType::kF32;
  return engine::DeviceExecutorOptions{}.slots * sent + (prepared ? kNumber * values : 0);
}

// Returns what the steps need of the memory of the host, or of the CUDA device that computes them.
MemoryPlanOptions memory_options(const SessionOptions& options, const Compute& compute,
                                 const backends::Group& group, const SessionData& data) {
  const bool shares = options.averaging.shard_optimizer && group.world_size() > 1;
  MemoryPlanOptions needs{
      .state = engine::state_dtype(compute.storage),
      .optimizer_states = engine::states_of(*options.update.optimizer, options.update.settings),
      .optimizer_ranks = shares ? group.world_size() : 1,
      .optimizer_rank = shares ? group.rank() : 0,
      .whole_tensors = shares && !options.update.optimizer->by_ranges,
      .averages = options.update.ema > 0 ? std::size_t{1} : std::size_t{0},
      .micro_batches = options.compute.micro_batches};
  if (compute.cuda()) {
    if (engine::is_half(compute.storage)) needs.short_weights = engine::size_of(compute.storage);
    if (options.evaluate.count > 0 && data.test().size() > 0)
      needs.evaluation = engine::evaluation_batch(data.test());
    needs.sample_bytes = device_sample_bytes(compute, data.train());
  } else {
    if (options.averaging.canonical) needs.shards = shards_of(options, group).count(group.rank());
    needs.batches =
        options.compute.micro_batches * (options.data.workers == 0 ? 1 : options.data.prefetch + 1);
    needs.sample_bytes = data.train().sample_count() * 4;
    needs.data = data_bytes(data.splits());
  }
  return needs;
}

}  // namespace

engine::PlanOptions plan_options(const SessionOptions& options, const Compute& compute,
                                 const SessionData& data, const engine::ThreadPool& pool) {
  const std::int64_t most = std::max<std::int64_t>(1, data.sampler().max_part_count());
  return {.max_batch = (most - 1) / options.compute.micro_batches + 1,
          .dtype = compute.storage,
          .threads = options.averaging.canonical ? 1 : pool.threads(),
          .device = compute.device.kind,
          .convolutions = options.compute.convolutions,
          .products = compute.products};
}

engine::TreePartition shards_of(const SessionOptions& options, const backends::Group& group) {
  return engine::TreePartition(io::divide_parts(options.averaging.shards, group.world_size(),
                                                io::BatchShares(options.data.shares.weights)));
}

void check_own_memory(const SessionOptions& options, const Compute& compute,
                      const backends::Group& group, const SessionData& data,
                      const engine::Graph& graph, const engine::ThreadPool& pool,
                      const MemoryBudget& memory) {
  check_memory(graph, plan_options(options, compute, data, pool),
               memory_options(options, compute, group, data),
               compute.cuda() ? device_memory_budget(compute.device.index) : memory);
}

MemoryNeed memory_need(const SessionOptions& options, const Compute& compute,
                       const backends::Group& group, const SessionData& data,
                       const SessionModel& model) {
  return memory_need(model.graph, model.plan.options, model.plan.options.max_batch,
                     memory_options(options, compute, group, data));
}

void allocate_on_device(const SessionOptions& options, const Compute& compute,
                        const backends::Group& group, const SessionData& data,
                        const SessionModel& model, const std::function<void()>& make) {
  try {
    make();
  } catch (const base::cuda::DeviceMemoryError& refused) {
    const base::cuda::MemoryShortage& shortage = refused.shortage();
    throw engine::MemoryError(std::string(refused.what()) + "; " +
                              batch_advice(model.graph, model.plan.options,
                                           memory_options(options, compute, group, data),
                                           shortage.held + shortage.free));
  }
}

}  // namespace tools
