// Backward of the losses against central differences in float64: smoothed labels, a class for each
// position, numbers, and several labels, with weights and without.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"

namespace {

using engine::Graph;
using engine::NodeId;
namespace layers = engine::layers;

NodeId logits_of(Graph& graph, NodeId image) {
  return graph.add("head", layers::dense(4), {graph.add("", layers::flatten(), {image})});
}

// The loss itself with label smoothing: the harness' classifiers have the plain one.
TEST(LabelSmoothing, GradientAgreesWithFiniteDifferences) {
  Graph graph;
  const NodeId x = graph.input("input", {4, 3, 2}),
               labels = graph.input("labels", {}, engine::DType::kI32);
  const NodeId logits =
      logits_of(graph, graph.add("c", layers::conv2d({.out_channels = 3, .padding = 1}), {x}));
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(0.3), {logits, labels}));
  EXPECT_LT(test_support::gradient_error(std::move(graph), 3, {.max_batch = 4}), 1e-7);
}

// A class for each pixel, with weights as of classes; a third of the pixels has no label.
TEST(PositionLoss, GradientAgreesWithFiniteDifferences) {
  Graph graph;
  const NodeId x = graph.input("input", {4, 3, 2}),
               labels = graph.input("labels", {4, 3}, engine::DType::kI32);
  const NodeId logits =
      graph.add("b", layers::conv2d({.out_channels = 5, .padding = 1}),
                {graph.add("a", layers::conv2d({.out_channels = 3, .padding = 1}), {x})});
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(0.3), {logits, labels}));
  const auto change = [](test_support::RandomBatch& batch) {
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      if (i % 3 == 0) batch.labels[i] = engine::ops::kNoLabel;
      batch.weights.push_back(0.3 + static_cast<double>(i % 4));
    }
  };
  EXPECT_LT(test_support::gradient_error(std::move(graph), 3, {.max_batch = 4}, 12, change), 1e-7);
}

// Four labels of 0, 1 or unknown, whose positives have weights.
TEST(RegressionLoss, GradientWithWeightsOfPositivesAgreesWithFiniteDifferences) {
  Graph graph;
  const NodeId x = graph.input("input", {4, 3, 2}), targets = graph.input("targets", {4});
  const NodeId logits =
      logits_of(graph, graph.add("c", layers::conv2d({.out_channels = 3, .padding = 1}), {x}));
  graph.set_outputs(logits,
                    graph.add("", layers::regression_loss(engine::ops::RegressionLoss::kLogistic),
                              {logits, targets}));
  const auto change = [](test_support::RandomBatch& batch) {
    for (std::size_t i = 0; i < batch.targets.size(); ++i) {
      batch.targets[i] = i % 5 == 2 ? NAN : static_cast<float>(i % 2);
      batch.weights.push_back(0.3 + static_cast<double>(i % 3));
    }
  };
  EXPECT_LT(test_support::gradient_error(std::move(graph), 3, {.max_batch = 4}, 12, change), 1e-7);
}

TEST(RegressionLoss, GradientAgreesWithFiniteDifferences) {
  for (const engine::ops::RegressionLoss kind :
       {engine::ops::RegressionLoss::kSquared, engine::ops::RegressionLoss::kAbsolute,
        engine::ops::RegressionLoss::kHuber, engine::ops::RegressionLoss::kLogistic}) {
    Graph graph;
    const NodeId x = graph.input("input", {4, 3, 2}), targets = graph.input("targets", {4});
    const NodeId predictions =
        logits_of(graph, graph.add("c", layers::conv2d({.out_channels = 3, .padding = 1}), {x}));
    graph.set_outputs(predictions,
                      graph.add("", layers::regression_loss(kind), {predictions, targets}));
    EXPECT_LT(test_support::gradient_error(std::move(graph), 3, {.max_batch = 4}), 1e-7);
  }
}

}  // namespace
