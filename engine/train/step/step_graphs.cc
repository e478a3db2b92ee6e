// Implements what does not depend on the captured work.
#include "engine/train/step/step_graphs.h"

#include <algorithm>
#include <utility>

namespace engine {
namespace {

// A graph takes device memory for each of its kernels. Shares by weights and the last batches of
// epochs have a few shapes.
constexpr std::size_t kMaxShapes = 16;

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

StepGraphs::Captured* StepGraphs::find(const StepShape& shape) {
  auto found = captured_.find(shape);
  if (found == captured_.end()) {
    if (captured_.size() == kMaxShapes) return nullptr;
    found = captured_.try_emplace(shape).first;
    found->second.graphs.resize(slots_);
  }
  return &found->second;
}

// No part of the capture has run.
std::string StepGraphs::drop(const std::string& failure) {
  cuda::StepGraph::drop_capture(stream_);
  if (sum_ != nullptr) sum_->drop_step();
  return failure;
}

void StepGraphs::settle(cuda::StepGraph& graph, cuda::StepGraph made, const std::string& failure) {
  const std::string first = sum_ == nullptr ? failure : sum_->first_failure(failure);
  has_failed_ = !first.empty();
  if (has_failed_)
    obstacle_ = "the capture failed, " + first;
  else
    graph = std::move(made);
}

}  // namespace engine
