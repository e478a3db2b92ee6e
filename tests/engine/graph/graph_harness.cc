// Harness, random graphs and finite differences.
#include "tests/engine/graph/graph_harness.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/layers/layers.h"

namespace test_support {

using engine::Graph;
using engine::NodeId;
namespace layers = engine::layers;

Harness::Harness(Graph the_graph, const engine::PlanOptions& options, std::uint64_t seed)
    : graph(std::move(the_graph)),
      plan(engine::Plan::compile(graph, options)),
      state(engine::ModelState::allocate(graph, options.dtype)),
      threads(options.threads),
      executor(plan, state, threads, seed) {
  state.initialize(graph, seed);
}

RandomBatch::RandomBatch(const Graph& graph, std::int64_t the_count, std::uint64_t seed)
    : count(the_count) {
  const auto classes = graph.nodes()[static_cast<std::size_t>(graph.logits())].shape.dims().back();
  bool reads_tokens = false, has_targets = false,
       first = true;  // the first input is of samples or tokens, the second of labels
  for (const Graph::Node& node : graph.nodes()) {
    if (node.layer) continue;
    (first ? sample_items : label_items) = node.shape.count();
    reads_tokens = reads_tokens || (first && node.dtype == engine::DType::kI32);
    has_targets = !first && node.dtype == engine::DType::kF32;
    first = false;
  }
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::uniform_int_distribution<std::int32_t> label(0, static_cast<std::int32_t>(classes) - 1);
  for (std::int64_t i = 0; i < count * sample_items && !reads_tokens; ++i)
    samples.push_back(value(random));
  for (std::int64_t i = 0; i < count * sample_items && reads_tokens; ++i)
    tokens.push_back(label(random));
  for (std::int64_t i = 0; i < count * label_items && has_targets; ++i)
    targets.push_back(value(random));
  for (std::int64_t i = 0; i < count * label_items && !has_targets; ++i)
    labels.push_back(label(random));
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(100 + i);
}

engine::BatchView RandomBatch::slice(std::int64_t first, std::int64_t n) const {
  const auto part = [&](const auto& all, std::int64_t items) {
    return std::span(all).subspan(static_cast<std::size_t>(first * items),
                                  static_cast<std::size_t>(n * items));
  };
  return {.count = n,
          .samples = part(samples, samples.empty() ? 0 : sample_items),
          .tokens = part(tokens, tokens.empty() ? 0 : sample_items),
          .labels = part(labels, labels.empty() ? 0 : label_items),
          .targets = part(targets, targets.empty() ? 0 : label_items),
          .weights = part(weights, weights.empty() ? 0 : label_items),
          .sample_ids = part(ids, 1)};
}

Graph classifier(const engine::Shape& sample, const std::function<NodeId(Graph&, NodeId)>& wire) {
  Graph graph;
  const NodeId x = graph.input("x", sample),
               labels = graph.input("labels", {}, engine::DType::kI32);
  const NodeId logits = wire(graph, x);
  graph.set_outputs(logits, graph.add("loss", layers::softmax_cross_entropy(), {logits, labels}));
  return graph;
}

Graph text_model(std::int64_t positions, const std::function<NodeId(Graph&, NodeId)>& wire) {
  Graph graph;
  const NodeId tokens = graph.input("tokens", {positions}, engine::DType::kI32),
               labels = graph.input("labels", {positions}, engine::DType::kI32);
  const NodeId logits = wire(graph, tokens);
  graph.set_outputs(logits, graph.add("loss", layers::softmax_cross_entropy(), {logits, labels}));
  return graph;
}

std::vector<double> to_doubles(const engine::TensorView& view) {
  if (view.dtype == engine::DType::kF64)
    return {view.span<double>().begin(), view.span<double>().end()};
  return {view.span<float>().begin(), view.span<float>().end()};
}

std::vector<double> to_doubles(const engine::FlatBuffer& buffer) {
  return to_doubles(
      engine::TensorView{buffer.data(), buffer.dtype(), {buffer.size()}, buffer.device()});
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::max({1.0, std::abs(a[i]), std::abs(b[i])});
    if (!std::isfinite(d)) return kInfinite;
    largest = std::max(largest, d);
  }
  return largest;
}

std::vector<double> gradients(Harness& harness, const engine::BatchView& batch, double scale) {
  harness.executor.forward(batch, true);
  harness.executor.backward(scale, engine::Write::kOverwrite, {});
  return to_doubles(harness.state.parameters.gradients);
}

double gradient_error(Graph graph, std::int64_t count, engine::PlanOptions options, int per_tensor,
                      const std::function<void(RandomBatch&)>& change) {
  options.dtype = engine::DType::kF64;
  options.max_batch = std::max(options.max_batch, count);
  Harness harness(std::move(graph), options);
  RandomBatch batch(harness.graph, count);
  if (change) change(batch);
  constexpr double kScale = 0.7, kStep = 1e-5;
  // Away from the symmetric start: a bias of 0 and a scale of 1 hide mistakes.
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> shift(-0.2, 0.2);
  const engine::FlatBuffer& values = harness.state.parameters.values;
  for (std::size_t slot = 0; slot < values.slots().size(); ++slot)
    for (double& value : values.view(slot).span<double>()) value += shift(random);
  const std::vector<double> analytic = gradients(harness, batch.view(), kScale);
  double largest = 0;
  for (const engine::FlatBuffer::Slot& slot : values.slots()) {
    std::uniform_int_distribution<std::int64_t> pick(0, slot.count - 1);
    for (int k = 0; k < per_tensor; ++k) {
      const auto i = static_cast<std::size_t>(
          slot.offset + (slot.count <= per_tensor ? k % slot.count : pick(random)));
      double& value = values.span<double>()[i];
      const double original = value;
      value = original + kStep;
      const double above = harness.executor.forward(batch.view(), true).loss_sum;
      value = original - kStep;
      const double below = harness.executor.forward(batch.view(), true).loss_sum;
      value = original;
      largest =
          std::max(largest, difference({analytic[i]}, {kScale * (above - below) / (2 * kStep)}));
    }
  }
  return largest;
}

namespace {

// Grows images by random layers; every leaf ends in the sum that gives the logits.
class RandomGraph {
 public:
  RandomGraph(Graph& graph, NodeId x, std::uint64_t seed, bool dropout)
      : graph_(graph), dropout_(dropout), random_(seed), nodes_{x} {}

  NodeId grow() {
    // Distinct images all through: the first layer has parameters, so that most of the graph has
    // gradients.
    for (int i = 0, steps = 6 + below(10); i < steps; ++i) grow_once(i);
    std::vector<bool> read(graph_.nodes().size(), false);
    for (const Graph::Node& node : graph_.nodes())
      for (const NodeId input : node.inputs) read[static_cast<std::size_t>(input)] = true;
    NodeId sum = -1;
    for (const NodeId id : nodes_) {
      if (read[static_cast<std::size_t>(id)]) continue;
      const NodeId vector =
          graph_.add("", below(2) ? layers::global_average_pool() : layers::flatten(), {id});
      const NodeId head = graph_.add(name("head"), layers::dense(4), {vector});
      sum = sum < 0 ? head : graph_.add("", layers::add(), {sum, head});
    }
    return sum;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  std::string name(const char* kind) {
    return std::string(kind) + std::to_string(graph_.nodes().size());
  }
  const engine::Shape& shape(NodeId id) const {
    return graph_.nodes()[static_cast<std::size_t>(id)].shape;
  }

  void grow_once(int i) {
    const NodeId from =
        nodes_[nodes_.size() - 1 -
               static_cast<std::size_t>(below(std::min(3, static_cast<int>(nodes_.size()))))];
    const bool large = shape(from)[0] >= 4;
    switch (i == 0 ? 0 : below(9)) {
      case 0:
      case 1:
        return push(graph_.add(
            name("conv"),
            layers::conv2d({.out_channels = 2, .kernel = 3, .padding = 1, .bias = below(2) == 0}),
            {from}));
      case 2:
        return push(graph_.add(name("norm"), layers::batch_norm2d(), {from}));
      case 3:
        return push(graph_.add("", layers::relu(),
                               {graph_.add(name("norm"), layers::batch_norm2d(), {from})}));
      case 4:
        return push(graph_.add("", layers::relu(), {from}));
      case 5:
        return add_block(from);
      case 6:
        return large ? push(graph_.add("", layers::max_pool2d({.window = 2}), {from}))
                     : add_two(from);
      case 7:
        return push(graph_.add("", layers::dropout(dropout_ && below(2) ? 0.3 : 0), {from}));
      default:
        return add_two(from);
    }
  }

  void push(NodeId id) { nodes_.push_back(id); }

  void add_two(NodeId from) {
    for (int tries = 0; tries < 5; ++tries) {
      const NodeId other = nodes_[static_cast<std::size_t>(below(static_cast<int>(nodes_.size())))];
      if (shape(other) == shape(from)) return push(graph_.add("", layers::add(), {from, other}));
    }
    push(graph_.add("", layers::relu(), {from}));
  }

  void add_block(NodeId from) {
    const NodeId norm = graph_.add(name("norm"), layers::batch_norm2d(), {from});
    const NodeId sum =
        graph_.add("", layers::add(), below(2) ? std::vector{norm, from} : std::vector{from, norm});
    push(below(3) ? graph_.add("", layers::relu(), {sum}) : sum);
  }

  Graph& graph_;
  bool dropout_;
  std::mt19937_64 random_;
  std::vector<NodeId> nodes_;
};

}  // namespace

Graph random_graph(std::uint64_t seed, bool dropout) {
  return classifier({6, 6, 2}, [&](Graph& graph, NodeId x) {
    return RandomGraph(graph, x, seed, dropout).grow();
  });
}

}  // namespace test_support
