// Implements what does not depend on the captured work.
#include "engine/train/step/step_graphs.h"

#include <algorithm>
#include <utility>

namespace engine {
namespace {

// A graph takes device memory for each of its kernels. Shares by weights and the last batches of
// epochs have a few shapes.
constexpr std::size_t kMaxShapes = 16;
// Shapes without a graph that are counted.
constexpr std::size_t kMaxCounted = 64;
// Shares that follow the ranks' speeds have new shapes in the course of a run. A graph that was
// not used in as many runs gives way; shapes that alternate are not captured again and again.
constexpr std::int64_t kUnusedRuns = 256;

}  // namespace

StepGraphs::StepGraphs(int slots, void* stream, DeviceGradientSum* sum, std::string obstacle,
                       std::function<void()> before_capture)
    : slots_(static_cast<std::size_t>(slots)),
      stream_(stream),
      sum_(sum),
      obstacle_(std::move(obstacle)),
      before_capture_(std::move(before_capture)) {}

std::string StepGraphs::text() const {
  if (!usable()) return "not captured: " + obstacle_;
  std::size_t shapes = 0, most = 0;
  for (const auto& [shape, captured] : captured_) {
    std::size_t nodes = 0;
    for (const cuda::StepGraph& graph : captured.graphs)
      if (graph) nodes = std::max(nodes, graph.nodes());
    shapes += nodes > 0 ? 1 : 0;
    most = std::max(most, nodes);
  }
  if (shapes == 0) return "captured from step " + std::to_string(kStepsBeforeCapture + 1) + " on";
  if (shapes == 1) return "captured, " + std::to_string(most) + " nodes";
  return "captured, up to " + std::to_string(most) + " nodes in " + std::to_string(shapes) +
         " shapes";
}

bool StepGraphs::Captured::has_graph() const {
  return std::ranges::any_of(graphs, [](const cuda::StepGraph& graph) { return bool(graph); });
}

StepGraphs::Captured& StepGraphs::find(const StepShape& shape) {
  const auto [found, is_new] = captured_.try_emplace(shape);
  Captured& captured = found->second;
  captured.last_run = ++runs_;
  if (!is_new) return captured;
  captured.graphs.resize(slots_);
  auto oldest = captured_.end();
  std::size_t counted = 0;
  for (auto each = captured_.begin(); each != captured_.end(); ++each) {
    if (each->second.has_graph()) continue;
    ++counted;
    if (oldest == captured_.end() || each->second.last_run < oldest->second.last_run) oldest = each;
  }
  if (counted > kMaxCounted) captured_.erase(oldest);
  return captured;
}

// Returns the shape with graphs that was not used for the longest time, if there is no room for
// another one; else null.
const StepGraphs::Captured* StepGraphs::unused_longest() const {
  const Captured* oldest = nullptr;
  std::size_t shapes = 0;
  for (const auto& [shape, captured] : captured_) {
    if (!captured.has_graph()) continue;
    ++shapes;
    if (oldest == nullptr || captured.last_run < oldest->last_run) oldest = &captured;
  }
  return shapes < kMaxShapes ? nullptr : oldest;
}

bool StepGraphs::may_capture(const Captured& captured) const {
  if (captured.has_graph()) return true;
  const Captured* const oldest = unused_longest();
  return oldest == nullptr || runs_ - oldest->last_run >= kUnusedRuns;
}

// Frees device memory, which is allowed when the ranks synchronize to create a graph.
void StepGraphs::make_room(const Captured& captured) {
  if (captured.has_graph()) return;
  const Captured* const oldest = unused_longest();
  if (oldest == nullptr) return;
  const ExchangeGate::Creation creation(ExchangeGate::of_process());
  for (auto& [shape, each] : captured_)
    if (&each == oldest) each.graphs = std::vector<cuda::StepGraph>(slots_);
}

// No part of the capture has run.
std::string StepGraphs::drop(const std::string& failure) {
  cuda::StepGraph::drop_capture(stream_);
  if (sum_ != nullptr) sum_->drop_step();
  return failure;
}

void StepGraphs::adopt_graph(cuda::StepGraph& graph, cuda::StepGraph made,
                             const std::string& failure) {
  const std::string first = sum_ == nullptr ? failure : sum_->first_failure(failure);
  has_failed_ = !first.empty();
  if (has_failed_)
    obstacle_ = "the capture failed, " + first;
  else
    graph = std::move(made);
}

}  // namespace engine
