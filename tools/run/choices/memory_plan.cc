// Sums memory over the plan, and extrapolates linearly from two of its sums.
#include "tools/run/choices/memory_plan.h"

#include <algorithm>

#include "backends/identity/host_layout.h"
#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/graph/model_state.h"
#include "engine/graph/parameter_kinds.h"
#include "engine/train/statistics_pass.h"
#include "io/base/files/io_error.h"
#include "io/base/text/memory_text.h"
#include "tools/launch/machine/memory_info.h"

namespace tools {
namespace {

// For all parameters, or only the trained ones.
std::uint64_t parameter_bytes(const engine::Graph& graph, engine::DType dtype, bool all) {
  std::uint64_t bytes = 0;
  for (const engine::OrderedParameter& parameter : engine::completion_order(graph, dtype))
    if (all || !parameter.frozen)
      bytes += engine::align_up(
          static_cast<std::size_t>(parameter.layout.layout.memory_shape().count()) *
          engine::size_of(dtype));
  return bytes;
}

// Returns this rank's bytes of the optimizer's states.
std::uint64_t optimizer_bytes(const engine::Graph& graph, const MemoryPlanOptions& options) {
  using Of = engine::OptimizerState::Of;
  const auto ranks = static_cast<std::uint64_t>(options.optimizer_share.ranks);
  const std::vector<std::string> matrices = engine::hidden_matrices(graph);
  const std::vector<engine::OrderedParameter> parameters =
      engine::completion_order(graph, options.state);
  std::vector<std::int64_t> sizes;
  for (const engine::OrderedParameter& p : parameters)
    sizes.push_back(p.layout.layout.memory_shape().count());
  const std::vector<int> owners = engine::assign_owners(sizes, options.optimizer_share.ranks);
  std::uint64_t all = 0;
  for (const engine::OptimizerState& state : options.optimizer_states) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Of kind = std::ranges::find(matrices, parameters[i].layout.name) != matrices.end()
                          ? Of::kHiddenMatrices
                          : Of::kOthers;
      if (state.of != Of::kAll && state.of != kind) continue;
      if (options.optimizer_share.whole_tensors && owners[i] != options.optimizer_share.rank)
        continue;
      bytes +=
          engine::align_up(static_cast<std::size_t>(sizes[i]) * engine::size_of(options.state));
    }
    all += options.optimizer_share.whole_tensors ? bytes : (bytes + ranks - 1) / ranks;
  }
  return all;
}

// Returns the bytes of the optimizer that are neither saved nor shared.
std::uint64_t optimizer_workspace(const engine::Graph& graph, const MemoryPlanOptions& options,
                                  engine::Device::Kind device) {
  if (options.optimizer_workspace == nullptr) return 0;
  const std::vector<std::string> matrices = engine::hidden_matrices(graph);
  std::vector<engine::TensorLayout> own;
  std::vector<std::int64_t> sizes;
  const std::vector<engine::OrderedParameter> parameters =
      engine::completion_order(graph, options.state);
  for (const engine::OrderedParameter& p : parameters)
    sizes.push_back(p.layout.layout.memory_shape().count());
  const std::vector<int> owners = engine::assign_owners(sizes, options.optimizer_share.ranks);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if ((!options.optimizer_share.whole_tensors || owners[i] == options.optimizer_share.rank) &&
        std::ranges::find(matrices, parameters[i].layout.name) != matrices.end())
      own.push_back(parameters[i].layout.layout);
  return options.optimizer_workspace(own, options.state, device);
}

// Returns the bytes for gradients of frozen parameters, which no batch and no limit changes.
std::uint64_t frozen_gradient_bytes(const engine::Graph& graph, const engine::PlanOptions& plan,
                                    engine::DType state) {
  if (std::ranges::none_of(engine::completion_order(graph, state),
                           &engine::OrderedParameter::frozen))
    return 0;
  engine::PlanOptions small = plan;
  small.max_batch = 1;
  small.memory_limit = 0;
  return engine::unwanted_bytes(engine::Plan::compile(graph, small));
}

template <typename Element>
std::uint64_t bytes_of(const std::vector<Element>& elements) {
  return elements.size() * sizeof(Element);
}

std::string parts_text(const MemoryNeed& need) {
  std::string text;
  const auto add = [&](const char* what, std::uint64_t bytes) {
    if (bytes >= need.total() / 100)
      text += (text.empty() ? "" : ", ") + base::memory_text(bytes) + " " + what;
  };
  add("activations", need.activations);
  add("parameters", need.parameters);
  add("gradients", need.gradients);
  add("optimizer", need.optimizer);
  add("averaging", need.averaging);
  add("saving", need.saving);
  add("batches", need.batches);
  add("data", need.data);
  add("evaluation", need.evaluation);
  add("average", need.average);
  return text;
}

// Counts the evaluation's model, and the activations of its batches, without gradients.
std::uint64_t evaluation_bytes(const engine::Graph& graph, const engine::PlanOptions& plan,
                               const MemoryPlanOptions& options, std::uint64_t parameters) {
  if (options.evaluation == 0) return 0;
  engine::PlanOptions inference = plan;
  inference.max_batch = options.evaluation;
  inference.training = false;
  const engine::Plan compiled = engine::Plan::compile(graph, inference);
  return parameters + compiled.arena_bytes + compiled.scratch_bytes +
         static_cast<std::uint64_t>(options.evaluation * options.sample_bytes);
}

// Counts a forward pass beside the step's plan; on a device it has a model and batches of its own.
std::uint64_t average_bytes(const engine::Graph& graph, const engine::PlanOptions& plan,
                            std::int64_t batch, const MemoryPlanOptions& options,
                            std::uint64_t parameters) {
  if (!options.statistics) return 0;
  engine::PlanOptions forward = plan;
  forward.max_batch = batch;
  const engine::Plan compiled = engine::Plan::compile(graph, engine::statistics_plan(forward));
  const std::uint64_t bytes = compiled.arena_bytes + compiled.scratch_bytes;
  if (plan.device == engine::Device::Kind::kCpu) return bytes;
  return bytes + parameters + static_cast<std::uint64_t>(batch * options.sample_bytes);
}

MemoryNeed need_without_activations(const engine::Graph& graph, const engine::PlanOptions& plan,
                                    std::int64_t batch, const MemoryPlanOptions& options) {
  const auto shards = static_cast<std::uint64_t>(options.shards_at_once());
  MemoryNeed need;
  const std::uint64_t parameters = parameter_bytes(graph, options.state, true);
  const std::uint64_t copies = parameters / engine::size_of(options.state) * options.short_weights;
  need.parameters = shards * (parameters + copies);
  const std::uint64_t gradients = gradient_bytes(graph, options.state);
  need.gradients =
      shards * (gradients + frozen_gradient_bytes(graph, plan, options.state)) + options.sums;
  need.averaging = gradients / engine::size_of(options.state) * options.averaging;
  const std::uint64_t optimizer = optimizer_bytes(graph, options),
                      averages = options.averages * parameters;
  need.optimizer = optimizer + averages + optimizer_workspace(graph, options, plan.device);
  if (options.saved.parameters > 0)
    (options.saved.in_host ? need.saving_in_host : need.saving) =
        static_cast<std::uint64_t>(options.saved.parameters) * parameters + averages +
        need.averaging + static_cast<std::uint64_t>(options.saved.optimizers) * optimizer;
  need.batches =
      shards * static_cast<std::uint64_t>(batch * options.batches * options.sample_bytes);
  need.data = options.data;
  need.evaluation = evaluation_bytes(graph, plan, options, parameters + copies);
  need.average = average_bytes(graph, plan, batch, options, parameters + copies);
  return need;
}

// Returns the largest --batch-size-per-device below `too_large` that fits `bytes`.
std::int64_t largest_batch_of_device(const engine::Graph& graph, const engine::PlanOptions& plan,
                                     const MemoryPlanOptions& options, std::uint64_t bytes,
                                     std::int64_t too_large) {
  const auto fits = [&](std::int64_t batch) {
    return memory_need(graph, plan, batch, options).total() <= bytes;
  };
  std::int64_t fitting = 0;
  while (fitting + 1 < too_large) {
    const std::int64_t batch = fitting + (too_large - fitting) / 2;
    (fits(batch) ? fitting : too_large) = batch;
  }
  return options.shards * fitting;
}

std::string max_batch_text(std::int64_t batch) {
  return "at most --batch-size-per-device " + std::to_string(batch) + " would fit";
}

std::string batches_text(const engine::PlanOptions& plan, const MemoryPlanOptions& options) {
  return (options.micro_batches > 1 ? "micro-batches of " : "batches of ") +
         std::to_string(options.shards * plan.max_batch) + " samples need ";
}

// Throws io::ConfigError if not even the plan with the fewest activations fits the user's limit.
void check_limit(const engine::Graph& graph, const engine::PlanOptions& plan,
                 const MemoryPlanOptions& options) {
  const MemoryNeed need = memory_need(graph, plan, plan.max_batch, options);
  if (need.total() <= options.limit) return;
  const std::int64_t fits =
      largest_batch_of_device(graph, plan, options, options.limit, plan.max_batch + 1);
  throw io::ConfigError(
      "--memory of " + base::memory_text(options.limit) + " is too small: " +
      batches_text(plan, options) + "at least " + base::enough_memory_text(need.total()) + " (" +
      parts_text(need) + ") with activations computed again in backward; " +
      (fits > 0 ? max_batch_text(fits)
                : "a batch of one sample needs at least " +
                      base::enough_memory_text(memory_need(graph, plan, 1, options).total())));
}

bool fits_if_recomputed(const engine::Graph& graph, const engine::PlanOptions& plan,
                        MemoryPlanOptions options, std::uint64_t bytes) {
  if (options.limit > 0 || bytes == 0) return false;
  options.limit = bytes;
  return memory_need(graph, plan, plan.max_batch, options).total() <= bytes;
}

constexpr std::int64_t kMaxBatch = 1 << 24;

constexpr const char* kDeviceTooSmall =
    "not even batches of one sample fit: use a smaller model, --amp bf16, or a device with more "
    "memory";

}  // namespace

MemoryBudget memory_budget(const backends::Group& group) {
  const std::optional<AvailableMemory> left = available_memory();
  return {.bytes = left ? left->bytes : 0, .ranks = backends::host_layout(group).local_count()};
}

MemoryBudget device_memory_budget(int device) {
  engine::cuda::use_device(device);
  const auto [left, total] = engine::cuda::free_and_total_memory();
  return {.bytes = left, .ranks = 1, .device = device, .total = total};
}

RankLimit rank_limit(const MemoryRequest& request, const MemoryBudget& budget,
                     const std::function<std::uint64_t(std::uint64_t limit)>& need) {
  const bool is_known = budget.bytes > 0 || budget.device;
  if (!request.automatic) {
    const bool is_bounded = request.bytes > 0 && is_known && budget.of_rank() < request.bytes;
    return {is_bounded ? std::max<std::uint64_t>(1, budget.of_rank()) : request.bytes,
            request.bytes};
  }
  if (!is_known) return {};
  const std::uint64_t most = std::max<std::uint64_t>(1, budget.nine_tenths_of_rank());
  return {need(most) <= most ? most : std::max(most, budget.of_rank()), most};
}

std::uint64_t data_bytes(const io::DatasetSplits& splits) {
  std::uint64_t bytes = 0;
  for (const io::Dataset* set : {&splits.train, &splits.test}) bytes += set->bytes();
  return bytes;
}

std::uint64_t gradient_bytes(const engine::Graph& graph, engine::DType state) {
  return parameter_bytes(graph, state, false);
}

engine::PlanOptions limited_plan(const engine::Graph& graph, const engine::PlanOptions& plan,
                                 std::int64_t batch, const MemoryPlanOptions& options) {
  engine::PlanOptions limited = plan;
  limited.max_batch = batch;
  limited.memory_limit = 0;
  if (options.limit == 0) return limited;
  const std::uint64_t others = need_without_activations(graph, plan, batch, options).total();
  const std::uint64_t left = options.limit > others ? options.limit - others : 0;
  limited.memory_limit =
      std::max<std::uint64_t>(1, left / static_cast<unsigned>(options.shards_at_once()));
  return limited;
}

MemoryNeed memory_need(const engine::Graph& graph, const engine::PlanOptions& plan,
                       std::int64_t batch, const MemoryPlanOptions& options) {
  const engine::Plan compiled =
      engine::Plan::compile(graph, limited_plan(graph, plan, batch, options));
  MemoryNeed need = need_without_activations(graph, plan, batch, options);
  need.activations = static_cast<std::uint64_t>(options.shards_at_once()) *
                     (compiled.arena_bytes + compiled.scratch_bytes);
  return need;
}

std::int64_t largest_batch(const engine::Graph& graph, const engine::PlanOptions& plan,
                           const MemoryPlanOptions& options) {
  std::int64_t too_large = plan.max_batch;
  while (too_large <= kMaxBatch &&
         memory_need(graph, plan, too_large, options).total() <= options.limit)
    too_large *= 2;
  return largest_batch_of_device(graph, plan, options, options.limit, too_large);
}

void check_memory(const engine::Graph& graph, const engine::PlanOptions& plan,
                  const MemoryPlanOptions& options, const MemoryBudget& budget) {
  if (options.limit_is_hard) check_limit(graph, plan, options);
  if (budget.bytes == 0 && !budget.device) return;  // the host's is not known
  const MemoryNeed need = memory_need(graph, plan, plan.max_batch, options);
  const std::uint64_t share = budget.of_rank();
  if (need.total() <= share) return;
  const std::int64_t fits =
      largest_batch_of_device(graph, plan, options, share, plan.max_batch + 1);
  const std::string of_ranks =
      budget.ranks <= 1 ? ""
                        : " for each of " + std::to_string(budget.ranks) + " ranks of this host";
  const bool on_device = budget.device.has_value();
  throw engine::MemoryError(
      "out of memory" + (on_device ? " on cuda:" + std::to_string(*budget.device) : "") + ": " +
      batches_text(plan, options) + base::memory_text(need.total()) + " (" + parts_text(need) +
      ")" + of_ranks + ", but " + base::memory_text(budget.bytes) +
      (on_device ? " of " + base::memory_text(budget.total) + " are free; " : " are available; ") +
      (fits > 0    ? max_batch_text(fits)
       : on_device ? kDeviceTooSmall
                   : "not even batches of one sample fit: use a smaller model, fewer ranks on this "
                     "host, or a host with more memory") +
      (fits_if_recomputed(graph, plan, options, share)
           ? "; with --memory auto this batch fits, and activations are computed again in backward"
           : ""));
}

std::string batch_advice(const engine::Graph& graph, const engine::PlanOptions& plan,
                         const MemoryPlanOptions& options, std::uint64_t bytes) {
  const std::int64_t fits =
                         largest_batch_of_device(graph, plan, options, bytes, plan.max_batch + 1),
                     tried = options.shards * plan.max_batch;
  if (fits <= 0 || tried == 1) return kDeviceTooSmall;
  if (fits < tried) return max_batch_text(fits);
  return "the plan would have fitted, so something else takes memory: try a "
         "--batch-size-per-device below " +
         std::to_string(tried);
}

}  // namespace tools
