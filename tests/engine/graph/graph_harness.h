// A graph with everything it takes to run it, random batches, and the gradient check that layer and
// graph tests share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/executor.h"

namespace test_support {

// Owns the graph, so that the plan's pointer to it stays good.
class Harness {
 public:
  Harness(engine::Graph graph, const engine::PlanOptions& options, std::uint64_t seed = 1);

  engine::Graph graph;
  engine::Plan plan;
  engine::ModelState state;
  engine::ThreadPool threads;
  engine::Executor executor;
};

// Samples in [-1, 1], labels below `classes`, ids 100, 101, ...; the same for the same seed. Owns
// its memory.
struct RandomBatch {
  RandomBatch(const engine::Graph& graph, std::int64_t count, std::uint64_t seed = 7);
  engine::BatchView view() const { return slice(0, count); }
  engine::BatchView slice(std::int64_t first, std::int64_t n) const;

  std::int64_t count = 0, sample_items = 0, label_items = 0;
  std::vector<float> samples;
  std::vector<std::int32_t>
      tokens;  // instead of samples where the graph reads token ids; below the number of classes
  std::vector<std::int32_t> labels;
  std::vector<float> targets;   // instead of labels where the graph reads those; in [-1, 1]
  std::vector<double> weights;  // of the labels or targets; empty
  std::vector<std::int64_t> ids;
};

// Inputs "x" of the shape and "labels"; `wire` gets the graph and the node of x and returns the
// logits' node.
engine::Graph classifier(const engine::Shape& sample,
                         const std::function<engine::NodeId(engine::Graph&, engine::NodeId)>& wire);

// The same for text: inputs "tokens" and "labels", both [positions].
engine::Graph text_model(std::int64_t positions,
                         const std::function<engine::NodeId(engine::Graph&, engine::NodeId)>& wire);

// All values (or gradients) as doubles, gaps included.
std::vector<double> to_doubles(const engine::FlatBuffer& buffer);
std::vector<double> to_doubles(const engine::TensorView& view);

// Largest |a - b| / max(1, |a|, |b|); infinite when the sizes differ or a value is not finite.
double difference(const std::vector<double>& a, const std::vector<double>& b);

// Forward and backward in training mode; returns the gradients of `scale` * the sum of losses.
std::vector<double> gradients(Harness& harness, const engine::BatchView& batch, double scale = 1);

// Compares backward with central differences in float64, for up to `per_tensor` elements of every
// parameter. Returns the largest difference relative to max(1, |gradient|). `options.dtype` is
// ignored. `change` gets the batch first.
double gradient_error(engine::Graph graph, std::int64_t count, engine::PlanOptions options = {},
                      int per_tensor = 12, const std::function<void(RandomBatch&)>& change = {});

// A random directed acyclic graph of images, with shared nodes, additions, aliases and several
// branches.
engine::Graph random_graph(std::uint64_t seed, bool dropout = true);

}  // namespace test_support
