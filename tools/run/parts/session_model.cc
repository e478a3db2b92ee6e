// Builds the model of a session and its optimizer from the options.
#include "tools/run/parts/session_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/graph/parameter_kinds.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/moving_average.h"
#include "engine/optim/optimizer.h"
#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/interchange/compare/compare_arrays.h"
#include "models/model_catalog.h"

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

void freeze(const ModelRequest& options, engine::Graph& graph) {
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

engine::Graph build_network(const ModelRequest& options, const io::Dataset& dataset) {
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

engine::Graph build_graph(const ModelRequest& options, const io::Dataset& dataset) {
  engine::Graph graph = build_network(options, dataset);
  if (options.synchronized_statistics) graph.synchronize_statistics();
  freeze(options, graph);
  return graph;
}

engine::ThreadPool make_pool(const SessionSetting& setting) {
  return setting.compute.make_pool(setting.options.compute.deterministic ? kDeterministicShares
                                                                         : 0);
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
std::unique_ptr<SharedUpdate> make_shared_update(const SessionSetting& setting,
                                                 const engine::ParameterBuffer& parameters) {
  const SessionOptions& options = setting.options;
  const int rank = setting.group.rank(), world = setting.group.world_size();
  if (!options.averaging.shard_optimizer || world == 1) return nullptr;
  const bool by_ranges = options.update.optimizer->by_ranges;
  const engine::OptimizerShards shares =
      by_ranges
          ? engine::shard_elements(
                parameters, engine::sharded_buckets(options.averaging.buckets, world), rank, world)
          : engine::shard_tensors(parameters.values, rank, world);
  return std::unique_ptr<SharedUpdate>(new SharedUpdate{
      shares, by_ranges && !setting.compute.cuda(),
      engine::ParameterGather(shares, parameters.gradients.size(), parameters.values.dtype())});
}

}  // namespace

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

SessionModel::SessionModel(const SessionSetting& setting, const MemoryBudget& host)
    : pool_threads(setting.compute.threads),
      pool(make_pool(setting)),
      graph(build_graph(setting.options.model, setting.data.train())),
      memory(check_own_memory(setting, graph, pool, host)),
      state(engine::ModelState::allocate(graph, engine::state_dtype(setting.compute.storage))),
      shared_update(make_shared_update(setting, state.parameters)),
      optimizer(make_optimizer(setting.options.update, graph, state.parameters.values,
                               shared_update.get())),
      control(engine::first_control(setting.compute.loss_scale)),
      plan(compile_plan(setting, graph, pool, memory)),
      context{.device = {}, .threads = &pool, .scratch = {}} {}

void SessionModel::refit(const SessionSetting& setting, const MemoryBudget& host) {
  samples.reset();  // its memory is free again
  MemoryBudget with_own = host;
  if (host.bytes > 0) {
    std::uint64_t own = state.parameters.values.bytes() + state.parameters.gradients.bytes();
    for (const engine::Optimizer::State& s : optimizer->state()) own += s.buffer->bytes();
    with_own.bytes += static_cast<std::uint64_t>(host.ranks) * own;
  }
  const Compute& compute = setting.compute;
  if (compute.threads != pool_threads || compute.binding) pool = make_pool(setting);
  pool_threads = compute.threads;
  memory = check_own_memory(setting, graph, pool, with_own);
  plan = compile_plan(setting, graph, pool, memory);
}

const engine::ResidentSamples* resident_samples(const SessionModel& model) {
  return model.samples ? &model.samples->view() : nullptr;
}

}  // namespace tools
