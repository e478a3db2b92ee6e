// Formats tables of the graph, of memory and of options.
#include "tools/run/session/dry_run.h"

#include <algorithm>

#include "io/base/text/escape_text.h"
#include "tools/report/output/text_table.h"
#include "tools/report/text/progress_line.h"

namespace tools {
namespace {

// Counts the node's own weights; tied weights count at their owner.
std::int64_t own_parameter_count(const engine::Graph& graph, engine::NodeId node) {
  std::int64_t count = 0;
  for (const engine::ParameterSpec& spec : graph.own_parameters(node))
    count += spec.layout.file_shape.count();
  return count;
}

std::string mega(double flops) { return flops == 0 ? "" : fixed(flops / 1e6, 3); }

std::string mebibytes(std::uint64_t bytes) {
  return fixed(static_cast<double>(bytes) / (1 << 20), 2);
}

Cells recomputation_cells(const MemoryFacts& memory) {
  if (memory.limit == 0) return {"none", "", "", "", "", ""};
  return {mebibytes(memory.limit),
          mebibytes(memory.kept),
          mebibytes(memory.recomputed),
          std::to_string(memory.recomputed_layers) + "/" + std::to_string(memory.layers),
          fixed(100 * memory.added_flops, 1) + " %",
          std::to_string(memory.largest_batch)};
}

}  // namespace

std::string model_table(const engine::Graph& graph) {
  std::vector<Cells> lines{{"layer", "kind", "output", "parameters", "MFLOP"}};
  std::int64_t parameters = 0;
  double flops = 0;
  for (engine::NodeId id = 0; id < static_cast<engine::NodeId>(graph.nodes().size()); ++id) {
    const engine::Graph::Node& node = graph.nodes()[static_cast<std::size_t>(id)];
    const std::int64_t own = own_parameter_count(graph, id);
    const double here = engine::forward_flops(graph, id);
    parameters += own;
    flops += here;
    lines.push_back({node.name.empty() ? "#" + std::to_string(id) : node.name,
                     node.layer ? std::string(node.layer->kind()) : "input", node.shape.to_string(),
                     own == 0 ? "" : with_commas(own), mega(here)});
  }
  lines.push_back({"total", "", "", with_commas(parameters), fixed(flops / 1e6, 3)});
  return table_text(lines, {0, 1, 2}, false);
}

std::string memory_table(const std::vector<RankMemory>& ranks) {
  const auto any = [&](std::uint64_t MemoryNeed::*part) {
    return std::ranges::any_of(ranks, [&](const RankMemory& rank) { return rank.need.*part > 0; });
  };
  const bool evaluation = any(&MemoryNeed::evaluation), averaging = any(&MemoryNeed::averaging),
             saving = any(&MemoryNeed::saving), saving_in_host = any(&MemoryNeed::saving_in_host),
             average = any(&MemoryNeed::average);
  std::vector<Cells> lines{{"rank", "host", "device", "parameters", "gradients", "optimizer",
                            "activations", "batches", "data"}};
  const bool limited =
      std::ranges::any_of(ranks, [](const RankMemory& rank) { return rank.limited.limit > 0; });
  if (evaluation) lines.back().emplace_back("evaluation");
  if (averaging) lines.back().emplace_back("averaging");
  if (saving) lines.back().emplace_back("saving");
  if (average) lines.back().emplace_back("average");
  lines.back().emplace_back("total");
  if (saving_in_host) lines.back().emplace_back("saving");
  const bool devices =
      std::ranges::any_of(ranks, [](const RankMemory& rank) { return rank.in_use > 0; });
  if (devices) lines.back().insert(lines.back().begin() + 3, "in use");
  if (limited)
    std::ranges::copy(Cells{"limit", "kept", "recomputed", "layers", "added FLOP", "max batch"},
                      std::back_inserter(lines.back()));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const MemoryNeed& need = ranks[r].need;
    lines.push_back({std::to_string(r), ranks[r].host, ranks[r].device, mebibytes(need.parameters),
                     mebibytes(need.gradients), mebibytes(need.optimizer),
                     mebibytes(need.activations), mebibytes(need.batches), mebibytes(need.data)});
    if (evaluation) lines.back().push_back(mebibytes(need.evaluation));
    if (averaging) lines.back().push_back(mebibytes(need.averaging));
    if (saving) lines.back().push_back(mebibytes(need.saving));
    if (average) lines.back().push_back(mebibytes(need.average));
    lines.back().push_back(mebibytes(need.total()));
    if (saving_in_host) lines.back().push_back(mebibytes(need.saving_in_host));
    if (devices) lines.back().insert(lines.back().begin() + 3, mebibytes(ranks[r].in_use));
    if (limited)
      std::ranges::move(recomputation_cells(ranks[r].limited), std::back_inserter(lines.back()));
  }
  return table_text(lines, {1, 2}, false);
}

std::string option_table_text(const ConfigValues& values) {
  std::vector<Cells> lines{{"option", "value", "from"}};
  for (const OptionSpec& option : train_options()) {
    const auto entry = values.find(option.name);
    if (entry == values.end() || entry->second.value.empty()) continue;
    lines.push_back({option.name, base::escape_text(entry->second.value),
                     base::escape_text(entry->second.source)});
  }
  return table_text(lines, {0, 1, 2}, false);
}

}  // namespace tools
