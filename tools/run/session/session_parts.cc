// Makes the parts of a training from its options.
#include "tools/run/session/session_parts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "engine/averaging/policies/gossip_pairs.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/averaging/sums/replica_statistics.h"
#include "engine/core/cuda.h"
#include "engine/graph/parameter_kinds.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/moving_average.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/device_work.h"
#include "engine/train/step/loaded_batch.h"
#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/compare/compare_arrays.h"
#include "models/model_catalog.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/session/session_memory.h"

namespace tools {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return io::glob_matches(pattern, name); });
}

namespace {

// With --deterministic, kernels divide their work into equally many shares on every machine.
constexpr int kDeterministicShares = 16;

// A pattern that matches no parameter is a typing error.
void require_match(const char* option, const std::string& pattern,
                   const std::vector<std::string>& names) {
  const auto fits = [&](const std::string& name) { return io::glob_matches(pattern, name); };
  if (std::ranges::any_of(names, fits)) return;
  throw io::ConfigError(std::string(option) + " '" + pattern + "' matches none of the " +
                        std::to_string(names.size()) + " parameters" +
                        base::did_you_mean(pattern, names) + " (--dry-run shows the layers)");
}

void freeze(const ModelOptions& options, engine::Graph& graph) {
  if (options.frozen.empty()) return;
  const std::vector<std::string> names = parameter_names(graph);
  for (const std::string& pattern : options.frozen) require_match("--freeze", pattern, names);
  if (graph.freeze([&](const std::string& name) { return matches_any(options.frozen, name); }) ==
      names.size())
    throw io::ConfigError("--freeze matches all " + std::to_string(names.size()) +
                          " parameters: nothing is left to train");
}

// Arrays of gray images without a dimension of channels are read as sequences.
std::string sequence_hint(const io::Dataset& dataset) {
  const std::vector<std::int64_t> shape = dataset.model_shape();
  if (dataset.find<io::ArraySamples>() == nullptr || shape.size() != 3) return "";
  if (shape[0] != 1 || shape[1] == 1) return "";
  return "; x is read as [samples, length, features], with " + std::to_string(shape[2]) +
         " features at " + std::to_string(shape[1]) +
         " positions: if these are gray images, save x[:, None]";
}

engine::Graph build_network(const ModelOptions& options, const io::Dataset& dataset) {
  try {
    return models::build_model(options.name, {.sample_shape = sample_shape(dataset),
                                              .classes = dataset.classes(),
                                              .label_smoothing = options.label_smoothing,
                                              .dropout = options.dropout,
                                              .regression = options.regression_loss(),
                                              .label_shape = label_shape(dataset),
                                              .definition = options.definition});
  } catch (const engine::ShapeError& error) {
    throw engine::ShapeError(error.what() + sequence_hint(dataset));
  }
}

engine::Graph build_graph(const ModelOptions& options, const io::Dataset& dataset) {
  engine::Graph graph = build_network(options, dataset);
  if (options.synchronized_statistics) graph.synchronize_statistics();
  freeze(options, graph);
  return graph;
}

engine::ThreadPool make_pool(const SessionOptions& options, const Compute& compute) {
  return compute.make_pool(options.compute.deterministic ? kDeterministicShares : 0);
}

std::unique_ptr<backends::DeviceCommunicator> make_device_wire(
    const SessionOptions& options, const Compute& compute, backends::Group& group,
    const std::vector<int>& members = {}) {
  const bool chosen = options.asked_backend == "nccl" || options.asked_backend == "auto";
  if (!compute.cuda() || group.world_size() == 1 || !chosen) return nullptr;
  if (group.backend() == "inproc" && options.compute.device.devices.size() < 2)
    return nullptr;  // threads that share one device
  engine::cuda::use_device(compute.device.index);
  auto communicator =
      group.make_device_communicator({.backend = options.asked_backend, .members = members});
  if (communicator->name() != "nccl") communicator.reset();
  return communicator;
}

// Returns true if each rank's own work is measured, for which the host waits for the device.
bool measures_shares(const SessionOptions& options) {
  return options.data.shares.automatic || options.data.local_steps.automatic;
}

// Returns true if the model may have layers that exchange batch statistics on the device. The model
// is not built yet. In elastic jobs they pass through host memory: a wait for sums of gradients
// does not notice an error of the communicator of statistics before the deadline.
bool exchanges_on_device(const SessionOptions& options) {
  if (options.data.max_ranks > 0) return false;
  const ModelOptions& model = options.model;
  if (model.synchronized_statistics) return true;
  const std::string definition =
      model.definition.empty() ? models::model_definition(model.name) : model.definition;
  return definition.find("sync_batch_norm2d") != std::string::npos;
}

// Returns true if ranks could skip different steps, because each rank keeps its own gradients.
bool skips_apart(const SessionOptions& options, const Compute& compute,
                 const backends::Group& group) {
  return group.world_size() > 1 && compute.loss_scale.on() &&
         options.averaging.method != AveragingOptions::Method::kGradients;
}

double rate_of(const UpdateOptions& update, const std::string& name) {
  for (const auto& [pattern, factor] : update.rate_groups)
    if (io::glob_matches(pattern, name)) return factor;
  return 1;
}

// Returns the names of the parameters without weight decay.
std::set<std::string> names_without_decay(const UpdateOptions& update, const engine::Graph& graph) {
  using Kind = engine::ParameterKind;
  static const std::map<std::string, Kind> kinds{
      {"norms", Kind::kNorm}, {"biases", Kind::kBias}, {"embeddings", Kind::kEmbedding}};
  std::set<std::string> found;
  for (const std::string& chosen : update.no_decay) {
    if (const auto kind = kinds.find(chosen); kind != kinds.end()) {
      for (std::string& name : engine::parameters_of(graph, kind->second))
        found.insert(std::move(name));
      continue;
    }
    const std::vector<std::string> names = parameter_names(graph);
    require_match("--no-decay", chosen, names);
    for (const std::string& name : names)
      if (io::glob_matches(chosen, name)) found.insert(name);
  }
  return found;
}

// Neighbors with the same factors form one range. `values`: frozen parameters are at the end.
std::vector<engine::UpdateRange> update_ranges(const UpdateOptions& update,
                                               const engine::Graph& graph,
                                               const engine::FlatBuffer& values) {
  const std::vector<std::string> names = parameter_names(graph);
  for (const auto& group : update.rate_groups) require_match("--lr-group", group.first, names);
  std::size_t frozen = 0;
  for (const engine::OrderedParameter& parameter : engine::completion_order(graph, values.dtype()))
    frozen += parameter.frozen ? 1 : 0;
  const std::set<std::string> without_decay = names_without_decay(update, graph);
  if (frozen == 0 && update.rate_groups.empty() && without_decay.empty()) return {};
  std::vector<engine::UpdateRange> ranges;
  const auto slots = values.slots();
  const std::size_t trained = slots.size() - frozen;
  for (std::size_t i = 0; i < trained; ++i) {
    const std::int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : values.size();
    const double rate = rate_of(update, slots[i].name);
    const double decay = without_decay.contains(slots[i].name) ? 0 : 1;
    if (ranges.empty() || ranges.back().rate != rate || ranges.back().decay != decay)
      ranges.push_back({slots[i].offset, 0, rate, decay});
    ranges.back().count = end - ranges.back().first;
  }
  return ranges;
}

// A device decides on the step by all gradients. NCCL's reduce-scatter would also add in another
// order than its all-reduce.
std::unique_ptr<SharedUpdate> make_shared_update(const SessionOptions& options,
                                                 const Compute& compute,
                                                 const backends::Group& group,
                                                 const engine::ParameterBuffer& parameters) {
  const int world = group.world_size();
  if (!options.averaging.shard_optimizer || world == 1) return nullptr;
  const bool by_ranges = options.update.optimizer->by_ranges;
  const engine::OptimizerShards shares =
      by_ranges ? engine::shard_elements(parameters,
                                         engine::dealt_buckets(options.averaging.buckets, world),
                                         group.rank(), world)
                : engine::deal_tensors(parameters.values, group.rank(), world);
  return std::unique_ptr<SharedUpdate>(new SharedUpdate{
      shares, by_ranges && !compute.cuda(),
      engine::ParameterGather(shares, parameters.gradients.size(), parameters.values.dtype())});
}

// `shared`: null if every rank updates all.
std::unique_ptr<engine::Optimizer> make_optimizer(const UpdateOptions& update,
                                                  const engine::Graph& graph,
                                                  const engine::FlatBuffer& values,
                                                  SharedUpdate* shared) {
  const engine::OptimizerSpec& spec = *update.optimizer;
  if (values.device().kind == engine::Device::Kind::kCuda && !spec.on_cuda)
    throw io::ConfigError(std::string("--optimizer ") + spec.name +
                          " needs --device cpu: it has no step on CUDA devices");
  auto optimizer = spec.make(spec, {update.settings, values, engine::hidden_matrices(graph),
                                    update_ranges(update, graph, values),
                                    shared == nullptr ? nullptr : &shared->shares.own()});
  if (shared != nullptr) optimizer = engine::with_gathering(std::move(optimizer), shared->gather);
  if (update.ema == 0) return optimizer;
  return engine::with_moving_average(std::move(optimizer), update.ema, values);
}

}  // namespace

SessionModel::SessionModel(const SessionOptions& options, const Compute& compute,
                           const backends::Group& group, const SessionData& data,
                           const MemoryBudget& host)
    : pool_threads(compute.threads),
      pool(make_pool(options, compute)),
      graph(build_graph(options.model, data.train())),
      memory(check_own_memory(options, compute, group, data, graph, pool, host)),
      state(engine::ModelState::allocate(graph, engine::state_dtype(compute.storage))),
      shared_update(make_shared_update(options, compute, group, state.parameters)),
      optimizer(
          make_optimizer(options.update, graph, state.parameters.values, shared_update.get())),
      control(engine::first_control(compute.loss_scale)),
      plan(compile_plan(options, compute, group, data, graph, pool, memory)),
      context{.device = {}, .threads = &pool, .scratch = {}} {}

void SessionModel::refit(const SessionOptions& options, const Compute& compute,
                         const backends::Group& group, const SessionData& data,
                         const MemoryBudget& host) {
  samples.reset();  // its memory is free again
  MemoryBudget with_own = host;
  if (host.bytes > 0) {
    std::uint64_t own = state.parameters.values.bytes() + state.parameters.gradients.bytes();
    for (const engine::Optimizer::State& s : optimizer->state()) own += s.buffer->bytes();
    with_own.bytes += static_cast<std::uint64_t>(host.ranks) * own;
  }
  if (compute.threads != pool_threads || compute.binding) pool = make_pool(options, compute);
  pool_threads = compute.threads;
  memory = check_own_memory(options, compute, group, data, graph, pool, with_own);
  plan = compile_plan(options, compute, group, data, graph, pool, memory);
}

DeviceWires::DeviceWires(const SessionOptions& options, const Compute& compute,
                         backends::Group& group)
    : gradients(options.averaging.method == AveragingOptions::Method::kGradients
                    ? make_device_wire(options, compute, group)
                    : nullptr),
      parameters(sums_parameters_on_devices(options.averaging)
                     ? make_device_wire(options, compute, group)
                     : nullptr),
      statistics(gradients && exchanges_on_device(options)
                     ? make_device_wire(options, compute, group)
                     : nullptr) {
  if (options.averaging.method != AveragingOptions::Method::kGossip || !parameters) return;
  const auto connect = [&](const std::vector<int>& members) {
    return make_device_wire(options, compute, group, members);
  };
  const int ranks = group.world_size(), self = group.rank();
  if (group.backend() != "inproc") {
    pairs = engine::connect_pairs(ranks, self, connect);
    return;
  }
  const auto meeting = host_communicator(group);
  pairs = engine::connect_in_turn(ranks, self, connect, [&] { meeting->barrier(); });
}

SessionCommunicators::SessionCommunicators(const SessionOptions& options, backends::Group& group,
                                           const engine::Graph& graph,
                                           const DeviceWires& on_devices)
    : island(island_ranks(options.averaging, group)),
      averaging(host_communicator(group)),
      device_pairs(on_devices.pairs),
      device(on_devices.gradients.get()),
      device_averaging(on_devices.parameters.get()),
      device_statistics(on_devices.statistics.get()) {
  if (options.averaging.host_islands && group.world_size() > 1)
    within_island = host_communicator(group, island);
  if (options.averaging.method == AveragingOptions::Method::kGossip)
    pairs = engine::connect_pairs(
        group.world_size(), group.rank(),
        [&group](const std::vector<int>& members) { return host_communicator(group, members); });
  if (group.world_size() == 1 || layers_that_use_replicas(graph) == 0) return;
  if (options.averaging.stale.max_behind > 0)
    throw io::ConfigError(
        "--stale needs a model without sync_batch_norm2d: its statistics need all ranks in every "
        "step, and late ranks skip steps");
  statistics = host_communicator(group);
  replicas = engine::make_rank_statistics(*statistics);
}

namespace {

// Returns the options of a device in canonical order.
engine::DeviceShardsOptions device_shards(const SessionOptions& options,
                                          const backends::Group& group,
                                          const SessionCommunicators& wires) {
  const bool alone = group.world_size() == 1;
  return {.cut = shards_of(options, group),
          .gradients = alone ? nullptr : wires.averaging.get(),
          .statistics = wires.statistics.get(),
          .devices = wires.device,
          .device_statistics = wires.device_statistics};
}

using MakeDeviceSum =
    std::function<std::unique_ptr<engine::DeviceGradientSum>(const engine::FlatBuffer&)>;

// REQUIRES: encodes_gradients_on_device(averaging).
MakeDeviceSum coded_sum(const AveragingOptions& averaging, const engine::CodeExchange& exchange,
                        std::uint64_t seed) {
  using Compression = AveragingOptions::Compression;
  if (averaging.compression == Compression::kTopK)
    return [exchange, ratio = averaging.topk_ratio](const engine::FlatBuffer& gradients) {
      return engine::make_top_k_device_sum(exchange, gradients, ratio);
    };
  if (averaging.compression == Compression::kPowerSgd)
    return [exchange, rank = averaging.powersgd_rank](const engine::FlatBuffer& gradients) {
      return engine::make_power_sgd_device_sum(exchange, gradients, rank);
    };
  if (averaging.compression == Compression::kBf16)
    return [exchange, buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
      return engine::make_bf16_device_sum(exchange, gradients, buckets);
    };
  return [exchange, codes = *codes_of(averaging, seed),
          buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
    return engine::make_coded_device_sum(exchange, gradients, codes, buckets);
  };
}

// Lets the device sum gradients: as the other ranks' devices do, or as codes.
void choose_sum(const SessionOptions& options, const backends::Group& group,
                const SessionCommunicators& wires, engine::DeviceWorkOptions& device) {
  const AveragingOptions& averaging = options.averaging;
  if (averaging.canonical) {
    device.shards = device_shards(options, group, wires);
  } else if (group.world_size() > 1 && encodes_gradients_on_device(averaging)) {
    device.averaging.wanted = true;  // has the memory of the error
    device.make_sum = coded_sum(averaging, {wires.averaging.get(), wires.device}, options.seed);
  } else if (wires.device) {
    device.make_sum = [wire = wires.device,
                       buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
      return engine::make_device_sum(*wire, gradients, buckets);
    };
  }
}

engine::DeviceAveragingOptions device_averaging(const SessionOptions& options,
                                                const backends::Group& group,
                                                const SessionCommunicators& wires) {
  engine::DeviceAveragingOptions averaging{
      .wanted =
          options.averaging.of_parameters() && averages(options.averaging, group.world_size()),
      .communicator = wires.device_averaging};
  const auto codes = codes_of(options.averaging, options.seed);
  if (averaging.wanted && codes)
    averaging.codes = engine::CodedParameters{*codes, wires.averaging.get()};
  return averaging;
}

engine::DeviceWorkOptions device_options(const SessionOptions& options, const Compute& compute,
                                         const backends::Group& group, const SessionData& data,
                                         SessionModel& model, const SessionCommunicators& wires) {
  engine::DeviceWorkOptions device{
      .device = compute.device,
      .seed = options.seed,
      .micro_batches = options.compute.micro_batches,
      .products = compute.products,
      .loss_scale = compute.loss_scale,
      .control = &model.control,
      .graph = compute.graph,
      .transfer = {.pinned = compute.pinned,
                   .non_blocking = compute.non_blocking,
                   .resident = resident_samples(model)},
      .supports_rollback = options.data.max_ranks > 0,
      .measured = data.sampling().shares_change && measures_shares(options),
      .restores_skipped = options.on_nonfinite == engine::OnNonFinite::kSkip,
      .image_table = engine::image_table(data.train(), data.normalization(), compute.device),
      .replicas = options.averaging.canonical ? nullptr : wires.replicas.get(),
      .statistics = wires.device_statistics,
      .make_optimizer = [&update = options.update, &model](const engine::FlatBuffer& values) {
        return make_optimizer(update, model.graph, values, model.shared_update.get());
      }};
  device.averaging = device_averaging(options, group, wires);
  if (wires.device_averaging)
    device.gradient_memory = engine::gradient_memory(*wires.device_averaging);
  if (wires.device) device.gradient_memory = engine::gradient_memory(*wires.device);
  choose_sum(options, group, wires, device);
  return device;
}

}  // namespace

const engine::ResidentSamples* resident_samples(const SessionModel& model) {
  return model.samples ? &model.samples->view() : nullptr;
}

std::unique_ptr<engine::StepWork> make_work(const SessionOptions& options, const Compute& compute,
                                            const backends::Group& group, const SessionData& data,
                                            SessionModel& model, const SessionCommunicators& wires,
                                            backends::Communicator& control) {
  if (model.shared_update)
    model.shared_update->gather.connect(*wires.averaging, model.state.parameters.values,
                                        wires.device);
  if (compute.cuda()) {
    if (options.averaging.stale.max_behind > 0 && skips_apart(options, compute, group))
      throw io::ConfigError(
          "--stale needs --amp off, tf32 or bf16: with loss scaling all ranks agree in every step "
          "on whether to skip it");
    engine::cuda::use_device(compute.device.index);
    apply_warpgroup_switch();
    if (model.memory.resident > 0)
      model.samples = std::make_unique<engine::DeviceSamples>(data.train(), compute.device);
    engine::DeviceWorkOptions device = device_options(options, compute, group, data, model, wires);
    if (skips_apart(options, compute, group)) device.agreement = &control;
    return engine::make_device_work(model.plan, model.state, *model.optimizer, device);
  }
  const engine::HostWorkParts parts{model.plan, model.state, *model.optimizer, model.pool};
  if (!options.averaging.canonical)
    return engine::make_accumulated_work(parts, {.micro_batches = options.compute.micro_batches,
                                                 .seed = options.seed,
                                                 .replicas = wires.replicas.get()});
  const bool alone = group.world_size() == 1;
  return engine::make_sharded_work(parts, {.cut = shards_of(options, group),
                                           .micro_batches = options.compute.micro_batches,
                                           .seed = options.seed,
                                           .gradients = alone ? nullptr : wires.averaging.get(),
                                           .statistics = wires.statistics.get()});
}

std::unique_ptr<engine::AveragingPolicy> make_policy(const SessionOptions& options,
                                                     const Compute& compute,
                                                     const backends::Group& group,
                                                     SessionModel& model,
                                                     const SessionCommunicators& wires) {
  const engine::FlatBuffer& gradients = model.state.parameters.gradients;
  const std::string on_device = wires.device ? ", on the device" : "";
  if (options.averaging.canonical && group.world_size() > 1)
    return engine::make_step_gradient_averaging(
        gradients,
        {.bytes = shards_of(options, group).nodes(group.rank()).size() * gradients.bytes(),
         .note = ", in canonical order" + on_device});
  if (wires.device && !encodes_gradients_on_device(options.averaging))
    return engine::make_step_gradient_averaging(gradients,
                                                {.bytes = gradients.bytes(), .note = on_device});
  const bool scattered = model.shared_update && model.shared_update->of_buckets;
  return make_averaging(options.averaging, group,
                        {*wires.averaging,
                         wires.within_island.get(),
                         model.state,
                         *model.optimizer,
                         model.context,
                         options.seed,
                         {wires.pairs, wires.device_pairs},
                         scattered ? &model.shared_update->shares : nullptr,
                         compute.cuda()});
}

engine::RunLength run_length(const SessionOptions& options, const SessionData& data) {
  return {.epochs = options.epochs,
          .steps = options.steps,
          .steps_per_epoch = data.sampler().steps_per_epoch()};
}

}  // namespace tools
