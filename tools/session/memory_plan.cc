// Sums over the plan, and a line through two of them.
#include "tools/session/memory_plan.h"

#include <algorithm>

#include "engine/averaging/sums/deal_shares.h"
#include "engine/core/error.h"
#include "engine/graph/model_state.h"
#include "tools/machine/memory_info.h"

namespace tools {
namespace {

// Of all, or of those that are trained.
std::uint64_t parameter_bytes(const engine::Graph& graph, engine::DType dtype, bool all) {
  std::uint64_t bytes = 0;
  for (const engine::OrderedParameter& parameter : engine::completion_order(graph, dtype))
    if (all || !parameter.frozen)
      bytes += engine::align_up(
          static_cast<std::size_t>(parameter.layout.layout.memory_shape().count()) *
          engine::size_of(dtype));
  return bytes;
}

// What this rank has of each of the optimizer's states.
std::uint64_t share_bytes(const engine::Graph& graph, const MemoryPlanOptions& options) {
  if (!options.whole_tensors) {
    const auto ranks = static_cast<std::uint64_t>(options.optimizer_ranks);
    return (parameter_bytes(graph, options.state, true) + ranks - 1) / ranks;
  }
  std::vector<std::int64_t> sizes;
  for (const engine::OrderedParameter& p : engine::completion_order(graph, options.state))
    sizes.push_back(p.layout.layout.memory_shape().count());
  const std::vector<int> owners = engine::deal_sizes(sizes, options.optimizer_ranks);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (owners[i] == options.optimizer_rank)
      bytes +=
          engine::align_up(static_cast<std::size_t>(sizes[i]) * engine::size_of(options.state));
  return bytes;
}

template <typename Element>
std::uint64_t bytes_of(const std::vector<Element>& elements) {
  return elements.size() * sizeof(Element);
}

// The need grows with the batch along a line: memory of tensors, and a rest.
std::int64_t largest_batch(const MemoryNeed& of_one, const MemoryNeed& of_all, std::int64_t batch,
                           double allowed) {
  if (static_cast<double>(of_one.total()) > allowed) return 0;
  if (batch == 1) return 1;
  const double slope = (static_cast<double>(of_all.total()) - static_cast<double>(of_one.total())) /
                       static_cast<double>(batch - 1);
  if (slope <= 0) return batch;
  return 1 + static_cast<std::int64_t>((allowed - static_cast<double>(of_one.total())) / slope);
}

std::string parts_text(const MemoryNeed& need) {
  std::string text;
  const auto add = [&](const char* what, std::uint64_t bytes) {
    if (bytes >= need.total() / 100)
      text += (text.empty() ? "" : ", ") + gib_text(bytes) + " " + what;
  };
  add("activations", need.activations);
  add("parameters", need.parameters);
  add("gradients", need.gradients);
  add("optimizer", need.optimizer);
  add("batches", need.batches);
  add("data", need.data);
  return text;
}

}  // namespace

MemoryBudget memory_budget(const backends::Group& group) {
  const auto& peers = group.peers();
  const std::string& host = peers.at(static_cast<std::size_t>(group.rank())).host_id;
  const auto here =
      std::ranges::count_if(peers, [&](const backends::PeerInfo& p) { return p.host_id == host; });
  return {available_memory().value_or(0), static_cast<int>(here)};
}

std::uint64_t data_bytes(const io::DatasetSplits& splits) {
  std::uint64_t bytes = 0;
  for (const io::Dataset* set : {&splits.train, &splits.test})
    bytes += bytes_of(set->samples) + bytes_of(set->features) + bytes_of(set->labels) +
             bytes_of(set->targets) + bytes_of(set->tokens);
  return bytes;
}

MemoryNeed memory_need(const engine::Graph& graph, const engine::PlanOptions& plan,
                       std::int64_t batch, const MemoryPlanOptions& options) {
  engine::PlanOptions of_batch = plan;
  of_batch.max_batch = batch;
  const engine::Plan compiled = engine::Plan::compile(graph, of_batch);
  const auto shards = static_cast<std::uint64_t>(options.shards);
  MemoryNeed need;
  need.activations = shards * (compiled.arena_bytes + compiled.scratch_bytes);
  const std::uint64_t parameters = parameter_bytes(graph, options.state, true);
  need.parameters = shards * parameters;
  need.gradients = shards * parameter_bytes(graph, options.state, false);
  need.optimizer =
      options.optimizer_states * share_bytes(graph, options) + options.averages * parameters;
  need.batches =
      shards * static_cast<std::uint64_t>(batch * options.batches * options.sample_bytes);
  need.data = options.data;
  return need;
}

void check_memory(const engine::Graph& graph, const engine::PlanOptions& plan,
                  const MemoryPlanOptions& options, const MemoryBudget& budget) {
  if (budget.bytes == 0) return;
  const MemoryNeed need = memory_need(graph, plan, plan.max_batch, options);
  const auto ranks = static_cast<std::uint64_t>(std::max(1, budget.ranks));
  const std::uint64_t share = budget.bytes / ranks;
  if (need.total() <= share) return;
  const std::int64_t fits =
      options.shards * largest_batch(memory_need(graph, plan, 1, options), need, plan.max_batch,
                                     static_cast<double>(share));
  const std::string of_ranks =
      ranks == 1 ? "" : " for each of " + std::to_string(ranks) + " ranks of this host";
  throw engine::MemoryError(
      "out of memory: batches of " + std::to_string(options.shards * plan.max_batch) +
      " samples need " + gib_text(need.total()) + " (" + parts_text(need) + ")" + of_ranks +
      ", but " + gib_text(budget.bytes) + " are available; " +
      (fits > 0 ? "at most --batch-size-per-device " + std::to_string(fits) + " would fit"
                : "not even batches of one sample fit: use a smaller model, fewer ranks on this "
                  "host, or a host with more memory"));
}

}  // namespace tools
