// Properties of plans that need no compilation.
#include "engine/graph/plan.h"

#include <algorithm>

#include "engine/core/arena.h"
#include "engine/graph/model_state.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine {

DType stored_dtype(const Graph& graph, const PlanOptions& options) {
  if (options.device != Device::Kind::kCpu || options.dtype != DType::kF32 ||
      !ops::in_bf16(options.products))
    return options.dtype;
  const bool all = std::ranges::all_of(graph.nodes(), [](const Graph::Node& node) {
    return node.layer == nullptr || node.layer->traits().stores_bf16_on_cpu;
  });
  return all ? DType::kBF16 : DType::kF32;
}

bool extends_texts(const Graph& graph) {
  const Graph::Node& input = graph.nodes().at(0);
  if (input.layer || input.dtype != DType::kI32 || input.shape.rank() != 1) return false;
  const std::int64_t context = input.shape[0];
  for (NodeId id = 1; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Graph::Node& node = graph.nodes()[static_cast<std::size_t>(id)];
    if (node.layer == nullptr || id == graph.loss()) continue;
    if (!node.layer->traits().extends_texts || node.shape.rank() != 2 || node.shape[0] != context)
      return false;
  }
  return true;
}

std::vector<std::int64_t> exchanged_sizes(const Plan& plan) {
  std::vector<std::int64_t> sizes;
  for (const PlanStep& step : plan.steps) {
    if (!step.layer->traits().uses_replicas || step.still) continue;
    const Shape& shape = plan.tensors[static_cast<std::size_t>(step.output)].item_shape;
    sizes.push_back(2 * shape[shape.rank() - 1]);
  }
  return sizes;
}

std::size_t unwanted_bytes(const Plan& plan) {
  std::vector<std::size_t> of_node(plan.graph->nodes().size(), 0);
  const DType dtype = state_dtype(plan.options.dtype);
  for (const OrderedParameter& parameter : completion_order(*plan.graph, dtype))
    if (parameter.frozen)
      of_node[static_cast<std::size_t>(parameter.node)] += align_up(
          static_cast<std::size_t>(parameter.layout.layout.file_shape.count()) * size_of(dtype));
  std::size_t most = 0;
  for (const PlanStep& step : plan.steps)
    if (step.backward)
      most =
          std::max(most, of_node[static_cast<std::size_t>(plan.graph->parameter_node(step.node))]);
  return most;
}

}  // namespace engine
