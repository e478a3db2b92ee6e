// Derives plans and their memory from a training's options.
#include "tools/run/parts/session_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/averaging/shards/node_sum.h"
#include "engine/core/error.h"
#include "engine/graph/device_executor.h"
#include "engine/graph/model_state.h"
#include "engine/ops/images/prepare_images.h"
#include "engine/optim/optimizer.h"
#include "engine/train/evaluator.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/device_samples.h"
#include "engine/train/step/device_shards.h"
#include "io/base/files/io_error.h"
#include "io/base/text/memory_text.h"
#include "io/gpu/device_memory.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/choices/device_codes.h"

namespace tools {
namespace {

// Returns the bytes of a sample in both buffers of DeviceExecutor: on its way to the device, or
// there.
std::int64_t device_sample_bytes(const Compute& compute, const io::Dataset& dataset) {
  constexpr std::int64_t kNumber = sizeof(float);  // labels and tokens have the same size
  const std::int64_t values = dataset.sample_count();
  // A weight of the loss of each label follows the labels.
  const std::int64_t labels =
      dataset.find<io::MultiLabels>() != nullptr ? dataset.classes() : dataset.positions();
  const bool bytes = engine::sends_bytes(dataset, compute.device);
  const std::int64_t sent =
      (bytes ? values + static_cast<std::int64_t>(sizeof(engine::ops::ImageDraw))
             : kNumber * values) +
      (kNumber + static_cast<std::int64_t>(sizeof(double))) * labels +
      static_cast<std::int64_t>(sizeof(std::int64_t));
  const bool prepared = bytes && compute.storage == engine::DType::kF32;
  return engine::DeviceExecutorOptions{}.slots * sent + (prepared ? kNumber * values : 0);
}

// Adds what a device needs for its shards.
void plan_device_shards(const engine::TreePartition& cut, const backends::Group& group,
                        const engine::Graph& graph, MemoryPlanOptions& needs) {
  const std::uint64_t gradients = gradient_bytes(graph, needs.state);
  needs.in_turn = engine::layers_that_use_replicas(graph) == 0;
  needs.sums = engine::DeviceTree::buffers(cut, group.rank()) * gradients;
  if (group.world_size() > 1) needs.sums += engine::node_sum_bytes(cut, gradients);
}

// Adds what a device needs for codes. In elastic jobs it also has a copy of their errors from
// before the step.
void plan_codes(const SessionOptions& options, const backends::Group& group,
                const engine::Graph& graph, MemoryPlanOptions& needs) {
  const std::uint64_t gradients = gradient_bytes(graph, needs.state);
  const std::uint64_t elements = gradients / engine::size_of(needs.state);
  needs.sums += coded_sum_bytes_on_device(options.averaging, group.world_size(), needs.state,
                                          static_cast<std::int64_t>(elements));
  const bool is_elastic = options.data.max_ranks > 0;
  std::vector<engine::NamedLayout> trained;
  for (const engine::OrderedParameter& parameter : engine::completion_order(graph, needs.state))
    if (!parameter.frozen) trained.push_back(parameter.layout);
  needs.sums += factor_bytes_on_device(options.averaging, group.world_size(), needs.state, trained,
                                       is_elastic ? 2 : 1);
  if (is_elastic && group.world_size() > 1 && encodes_gradients_on_device(options.averaging))
    needs.sums +=
        elements * averaging_bytes_on_device(options.averaging, group.world_size(), needs.state);
}

// Adds the copy of the state in host memory from which rank 0 writes checkpoints. Rank 1 has as
// much if it may have to save a mean of parameters, or the state of a device, in place of rank 0;
// ranks 0 and 1 also have the unsent part of compressed gradients from before the step.
void plan_saving(const SessionOptions& options, const backends::Group& group,
                 MemoryPlanOptions& needs) {
  using Method = AveragingOptions::Method;
  const AveragingOptions& averaging = options.averaging;
  const bool elastic = options.data.max_ranks > 0;
  const bool saves = !options.keeping.directory.empty() || options.keeping.only_planned;
  if (!saves || group.rank() > 1) return;
  if (!elastic && averaging.of_gradients() && !needs.saved.in_host) needs.averaging *= 2;
  if (group.rank() == 1) {
    const bool is_mean = averaging.of_parameters() && averaging.stale.max_behind == 0 &&
                         averaging.method != Method::kStreaming &&
                         averaging.method != Method::kGossip;
    const bool of_device = needs.saved.in_host && !averaging.shard_optimizer;
    if ((is_mean || of_device) && !elastic) needs.saved.parameters = needs.saved.optimizers = 1;
    return;
  }
  const bool differ = !averaging.of_gradients() && !averaging.states.all;
  needs.saved.parameters = averaging.method == Method::kNone ? group.world_size() : 1;
  needs.saved.optimizers = averaging.shard_optimizer || differ ? group.world_size() : 1;
}

bool has_running_statistics(const engine::Graph& graph) {
  for (engine::NodeId id = 0; id < std::ssize(graph.nodes()); ++id)
    if (graph.nodes()[static_cast<std::size_t>(id)].layer)
      for (const engine::BufferSpec& buffer : own_buffers(graph, id))
        if (!buffer.counter && !buffer.is_constant) return true;
  return false;
}

// Returns what the steps need of the memory of the host, or of the CUDA device that computes them.
MemoryPlanOptions memory_options(const SessionSetting& setting, const engine::Graph& graph,
                                 const OwnMemory& own) {
  const auto& [options, compute, group, data] = setting;
  const bool shares = options.averaging.shard_optimizer && group.world_size() > 1;
  MemoryPlanOptions needs{
      .state = engine::state_dtype(compute.storage),
      .optimizer_states = engine::states_of(*options.update.optimizer, options.update.settings),
      .optimizer_workspace = options.update.optimizer->workspace_bytes,
      .optimizer_share = {.ranks = shares ? group.world_size() : 1,
                          .rank = shares ? group.rank() : 0,
                          .whole_tensors = shares && !options.update.optimizer->by_ranges},
      .averages = options.update.ema > 0 ? std::size_t{1} : std::size_t{0},
      .averaging = (compute.cuda() ? averaging_bytes_on_device : averaging_bytes)(
          options.averaging, group.world_size(), engine::state_dtype(compute.storage)),
      .micro_batches = options.compute.micro_batches,
      .statistics = options.average_last > 0 && has_running_statistics(graph),
      .limit = own.limit.bytes,
      .limit_is_hard = own.limit.bytes > 0 && !options.compute.memory.automatic &&
                       own.limit.bytes == own.limit.requested};
  if (options.averaging.canonical) needs.shards = shards_of(options, group).count(group.rank());
  if (compute.cuda()) {
    if (options.averaging.canonical) {
      const engine::TreePartition cut = shards_of(options, group);
      plan_device_shards(cut, group, graph, needs);
      if (compute.graph)
        needs.batches = engine::graph_slots(cut, group.rank(), needs.micro_batches, needs.in_turn) /
                        engine::DeviceExecutorOptions{}.slots;
    }
    plan_codes(options, group, graph, needs);
    if (engine::is_half(compute.storage)) needs.short_weights = engine::size_of(compute.storage);
    if (options.evaluate.count > 0 && data.test().size() > 0)
      needs.evaluation = engine::evaluation_batch(data.test());
    needs.sample_bytes = device_sample_bytes(compute, data.train());
    needs.data = own.resident;
    needs.saved.in_host = true;
  } else {
    needs.batches =
        options.compute.micro_batches * (options.data.workers == 0 ? 1 : options.data.prefetch + 1);
    needs.sample_bytes = data.train().sample_count() * 4;
    needs.data = data_bytes(data.splits());
    if (options.average_last > 0) needs.averages = 1;
  }
  plan_saving(options, group, needs);
  return needs;
}

// Decides if the device has the samples. `room`: bytes that may be used without recomputation.
void place_data(DataOnDevice asked, const io::Dataset& train, std::uint64_t room,
                const std::function<std::uint64_t(std::uint64_t resident)>& need_with,
                OwnMemory& own) {
  // More would take longer to copy than short runs save.
  constexpr std::uint64_t kMaxByItself = std::uint64_t{2} << 30;
  if (asked == DataOnDevice::kOff) return;
  own.in_host_memory = engine::DeviceSamples::obstacle(train);
  if (!own.in_host_memory.empty()) {
    if (asked == DataOnDevice::kAuto) return;
    throw io::ConfigError("--data-on-device on: " + own.in_host_memory +
                          "; expected samples of one size in memory; give auto or off");
  }
  const std::uint64_t bytes = engine::DeviceSamples::bytes(train);
  if (asked == DataOnDevice::kAuto && bytes > kMaxByItself)
    own.in_host_memory =
        base::memory_text(bytes) + " are more than " + base::memory_text(kMaxByItself);
  else if (asked == DataOnDevice::kAuto && need_with(bytes) > room)
    own.in_host_memory = base::memory_text(bytes) + " beside " + base::memory_text(need_with(0)) +
                         " for steps are more than " + base::memory_text(room);
  else
    own.resident = bytes;
}

}  // namespace

engine::PlanOptions plan_options(const SessionSetting& setting, const engine::ThreadPool& pool) {
  const SessionOptions& options = setting.options;
  const Compute& compute = setting.compute;
  const std::int64_t most = std::max<std::int64_t>(1, setting.data.sampler().max_part_count());
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

OwnMemory check_own_memory(const SessionSetting& setting, const engine::Graph& graph,
                           const engine::ThreadPool& pool, const MemoryBudget& memory) {
  const SessionOptions& options = setting.options;
  const Compute& compute = setting.compute;
  const MemoryBudget budget = compute.cuda() ? device_memory_budget(compute.device.index) : memory;
  const engine::PlanOptions plan = plan_options(setting, pool);
  const MemoryRequest& request = options.compute.memory;
  OwnMemory own{.in_use = compute.cuda() ? budget.in_use() : 0};
  const auto need = [&](const OwnMemory& memory) {
    return memory_need(graph, plan, plan.max_batch, memory_options(setting, graph, memory)).total();
  };
  if (compute.cuda())
    place_data(
        options.compute.data_on_device, setting.data.train(),
        request.bytes > 0 ? std::min(request.bytes, budget.nine_tenths_of_rank())
                          : budget.nine_tenths_of_rank(),
        [&](std::uint64_t resident) { return need({.resident = resident}); }, own);
  own.limit = rank_limit(request, budget, [&](std::uint64_t limit) {
    return need({.limit = {limit, limit}, .resident = own.resident});
  });
  check_memory(graph, plan, memory_options(setting, graph, own), budget);
  return own;
}

engine::Plan compile_plan(const SessionSetting& setting, const engine::Graph& graph,
                          const engine::ThreadPool& pool, const OwnMemory& memory) {
  const engine::PlanOptions plan = plan_options(setting, pool);
  return engine::Plan::compile(
      graph, limited_plan(graph, plan, plan.max_batch, memory_options(setting, graph, memory)));
}

MemoryNeed memory_need(const SessionSetting& setting, const PlannedModel& model) {
  return memory_need(model.graph, model.plan.options, model.plan.options.max_batch,
                     memory_options(setting, model.graph, model.memory));
}

MemoryFacts memory_facts(const SessionSetting& setting, const PlannedModel& model) {
  const MemoryPlanOptions given = memory_options(setting, model.graph, model.memory);
  const engine::Recomputation& recomputed = model.plan.recomputation;
  const MemoryNeed need = memory_need(setting, model);
  return {
      .limit = model.memory.limit.bytes,
      .requested = model.memory.limit.requested,
      .total = need.total(),
      .parameters = need.parameters,
      .gradients = need.gradients,
      .optimizer = need.optimizer,
      .activations = need.activations,
      .averaging = need.averaging,
      .saving = need.saving,
      .kept = static_cast<std::uint64_t>(given.shards_at_once()) * recomputed.kept_bytes,
      .recomputed = static_cast<std::uint64_t>(given.shards_at_once()) * recomputed.repeated_bytes,
      .segments = std::ssize(recomputed.segments),
      .recomputed_layers = recomputed.steps,
      .layers = std::ssize(model.plan.steps),
      .added_flops = recomputed.added_flops,
      .largest_batch = largest_batch(model.graph, model.plan.options, given)};
}

void allocate_on_device(const SessionSetting& setting, const PlannedModel& model,
                        const std::function<void()>& make) {
  try {
    make();
  } catch (const base::cuda::DeviceMemoryError& refused) {
    const base::cuda::MemoryShortage& shortage = refused.shortage();
    throw engine::MemoryError(std::string(refused.what()) + "; " +
                              batch_advice(model.graph, model.plan.options,
                                           memory_options(setting, model.graph, model.memory),
                                           shortage.held + shortage.free));
  }
}

}  // namespace tools
