// Executor: the same numbers whatever the batch's cut, the fusion and the threads; and no state
// changed by accident.
#include "engine/graph/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using engine::DType;
using engine::Graph;
using engine::NodeId;
using engine::PlanOptions;
using engine::Write;
using test_support::difference;
using test_support::gradients;
using test_support::Harness;
using test_support::RandomBatch;
using test_support::to_doubles;
namespace layers = engine::layers;

std::string bytes_of(const engine::FlatBuffer& buffer) {
  return {static_cast<const char*>(buffer.data()), buffer.bytes()};
}
std::string bytes_of(const engine::ModelState& state) {
  return bytes_of(state.parameters.values) + bytes_of(state.running) + bytes_of(state.counters);
}

// Convolution, norm, residual, pooling, dropout, dense.
Graph image_graph(bool norm = true) {
  return test_support::classifier({8, 8, 3}, [norm](Graph& g, NodeId x) {
    const auto normalize = [&](const char* name, NodeId from) {
      return norm ? g.add(name, layers::batch_norm2d(), {from}) : from;
    };
    const NodeId a = g.add(
        "", layers::relu(),
        {normalize("n0", g.add("c0", layers::conv2d({.out_channels = 6, .padding = 1}), {x}))});
    const NodeId b =
        normalize("n1", g.add("c1", layers::conv2d({.out_channels = 6, .padding = 1}), {a}));
    const NodeId sum = g.add("", layers::relu(), {g.add("", layers::add(), {b, a})});
    const NodeId flat = g.add("", layers::flatten(), {g.add("", layers::max_pool2d({}), {sum})});
    const NodeId hidden = g.add("", layers::relu(), {g.add("d0", layers::dense(16), {flat})});
    return g.add("d1", layers::dense(5), {g.add("drop", layers::dropout(0.3), {hidden})});
  });
}

// A convolution that suits_winograd() takes.
TEST(Convolutions, AreDirectWherePlannedSo) {
  const auto graph = [] {
    return test_support::classifier({8, 8, 16}, [](Graph& g, NodeId x) {
      const NodeId c = g.add("c", layers::conv2d({.out_channels = 16, .padding = 1}), {x});
      return g.add("d", layers::dense(5), {g.add("", layers::flatten(), {c})});
    });
  };
  Harness by_shape(graph(), {.max_batch = 8}),
      direct(graph(), {.max_batch = 8, .convolutions = engine::Convolutions::kDirect});
  const RandomBatch batch(by_shape.graph, 8);
  const std::vector<double> found = gradients(by_shape, batch.view()),
                            plain = gradients(direct, batch.view());
  EXPECT_NE(found, plain);
  EXPECT_LT(difference(found, plain), 1e-5);
}

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, GradientsAgreeWithFiniteDifferences) {
  for (const bool fuse : {true, false})
    EXPECT_LT(test_support::gradient_error(
                  test_support::random_graph(static_cast<std::uint64_t>(GetParam())), 3,
                  {.fuse = fuse}, 3),
              1e-6);
}

TEST_P(RandomGraphs, FusionDoesNotChangeTheNumbers) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Harness fused(test_support::random_graph(seed), {.max_batch = 4, .dtype = DType::kF64});
  Harness plain(test_support::random_graph(seed),
                {.max_batch = 4, .dtype = DType::kF64, .fuse = false});
  const RandomBatch batch(fused.graph, 4);
  EXPECT_LT(difference(gradients(fused, batch.view()), gradients(plain, batch.view())), 1e-11);
  EXPECT_EQ(bytes_of(fused.state.counters), bytes_of(plain.state.counters));
  EXPECT_LT(difference(to_doubles(fused.state.running), to_doubles(plain.state.running)), 1e-12);
  // And a plan for inference reads the same predictions as a training plan.
  engine::ThreadPool threads(1);
  const engine::Plan plan =
      engine::Plan::compile(fused.graph, {.max_batch = 4, .dtype = DType::kF64, .training = false});
  engine::Executor inference(plan, fused.state, threads, 1);
  EXPECT_EQ(inference.forward(batch.view(), false).loss_sum,
            fused.executor.forward(batch.view(), false).loss_sum);
}

TEST_P(RandomGraphs, SinglePrecisionAgreesWithDouble) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Harness single(test_support::random_graph(seed), {.max_batch = 4}),
      twice(test_support::random_graph(seed), {.max_batch = 4, .dtype = DType::kF64});
  const RandomBatch batch(single.graph, 4);
  const double a = single.executor.forward(batch.view(), true).loss_sum,
               b = twice.executor.forward(batch.view(), true).loss_sum;
  EXPECT_NEAR(a, b, 1e-4 * std::max(1.0, std::abs(b)));
}

// Every tensor but the loss in bf16, written over others where the plan says so.
TEST_P(RandomGraphs, StoredInBf16AgreesWithSingle) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  const auto seed = static_cast<std::uint64_t>(GetParam());
  const engine::PlanOptions halves{.max_batch = 8, .products = engine::Products::kBF16};
  Harness stored(test_support::random_graph(seed), halves),
      single(test_support::random_graph(seed), {.max_batch = 8});
  ASSERT_EQ(stored.plan.storage, DType::kBF16);
  const RandomBatch batch(single.graph, 8);
  const double loss = single.executor.forward(batch.view(), true).loss_sum;
  EXPECT_NEAR(stored.executor.forward(batch.view(), true).loss_sum, loss, 0.05 * loss);
  const std::vector<double> found = gradients(stored, batch.view()),
                            expected = gradients(single, batch.view());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_LT(error, 0.01 * size);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(100, 125));

TEST(Executor, RunsAreTheSameBits) {
  for (const int threads : {1, 2}) {
    const PlanOptions options{.max_batch = 6, .threads = threads};
    Harness first(image_graph(), options), second(image_graph(), options);
    const RandomBatch batch(first.graph, 6);
    for (int step = 0; step < 3; ++step) {
      gradients(first, batch.view());
      gradients(second, batch.view());
    }
    EXPECT_EQ(bytes_of(first.state.parameters.gradients),
              bytes_of(second.state.parameters.gradients));
    EXPECT_EQ(bytes_of(first.state), bytes_of(second.state));
  }
}

TEST(Executor, TakesBatchesSmallerThanThePlans) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Harness large(image_graph(), {.max_batch = 8, .dtype = dtype}),
        fitting(image_graph(), {.max_batch = 3, .dtype = dtype});
    const RandomBatch batch(large.graph, 8);
    const double tolerance = dtype == DType::kF32 ? 1e-5 : 1e-12;
    gradients(large, batch.view());  // leaves the memory of 8 samples behind
    large.state.initialize(large.graph, 1);
    EXPECT_LT(
        difference(gradients(large, batch.slice(2, 3)), gradients(fitting, batch.slice(2, 3))),
        tolerance);
    EXPECT_EQ(large.executor.logits().shape, (engine::Shape{3, 5}));
    gradients(large, batch.slice(0, 0));
    large.state.initialize(large.graph, 1);
    fitting.state.initialize(fitting.graph, 1);
    EXPECT_LT(
        difference(gradients(large, batch.slice(5, 3)), gradients(fitting, batch.slice(5, 3))),
        tolerance);
  }
}

TEST(Executor, EmptyBatchGivesZeroGradientsAndKeepsRunningStatistics) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool fuse : {true, false}) {
      Harness harness(image_graph(), {.max_batch = 4, .dtype = dtype, .fuse = fuse});
      const RandomBatch batch(harness.graph, 4);
      const std::vector<double> before = gradients(harness, batch.view());
      const std::string running = bytes_of(harness.state.running);
      const engine::BatchResult result = harness.executor.forward({}, true);
      EXPECT_EQ(result.loss_sum, 0);
      EXPECT_EQ(result.rows, 0);
      EXPECT_EQ(result.correct, 0);
      harness.executor.backward(1, Write::kAdd, {});
      EXPECT_EQ(to_doubles(harness.state.parameters.gradients), before);
      harness.executor.forward({}, true);
      harness.executor.backward(1, Write::kOverwrite, {});
      for (const double value : to_doubles(harness.state.parameters.gradients)) ASSERT_EQ(value, 0);
      EXPECT_EQ(bytes_of(harness.state.running), running);
      EXPECT_EQ(harness.state.view(harness.state.entries[6]).as<std::int64_t>()[0], 3)
          << "counters stay equal on all ranks";
    }
}

TEST(Executor, GradientsOfPartsAddUpToTheWhole) {
  const PlanOptions options{.max_batch = 8, .dtype = DType::kF64};
  Harness whole(image_graph(false), options), parts(image_graph(false), options);
  const RandomBatch batch(whole.graph, 8);
  const std::vector<double> expected = gradients(whole, batch.view(), 0.125);
  parts.executor.forward(batch.slice(0, 5), true);
  parts.executor.backward(0.125, Write::kOverwrite, {});
  parts.executor.forward(batch.slice(5, 3), true);
  parts.executor.backward(0.125, Write::kAdd, {});
  EXPECT_LT(difference(expected, to_doubles(parts.state.parameters.gradients)), 1e-13);
}

TEST(Executor, InferenceChangesNoByteOfTheState) {
  for (const bool training_plan : {true, false}) {
    Harness harness(image_graph(), {.max_batch = 4, .training = training_plan});
    const RandomBatch batch(harness.graph, 4);
    if (training_plan) gradients(harness, batch.view());
    const std::string state = bytes_of(harness.state),
                      gradient = bytes_of(harness.state.parameters.gradients);
    const double first = harness.executor.forward(batch.view(), false).loss_sum;
    EXPECT_EQ(harness.executor.forward(batch.view(), false).loss_sum, first);
    EXPECT_EQ(bytes_of(harness.state), state);
    EXPECT_EQ(bytes_of(harness.state.parameters.gradients), gradient);
    EXPECT_THROW(harness.executor.backward(1, Write::kOverwrite, {}), engine::Error);
  }
  Harness inference(image_graph(), {.training = false});
  const RandomBatch batch(inference.graph, 1);
  EXPECT_THROW(inference.executor.forward(batch.view(), true), engine::Error);
}

TEST(Executor, SaysWhichGradientsAreFinal) {
  for (const bool fuse : {true, false}) {
    Harness harness(image_graph(), {.max_batch = 4, .fuse = fuse});
    const RandomBatch batch(harness.graph, 4);
    harness.executor.forward(batch.view(), true);
    const std::span<float> buffer = harness.state.parameters.gradients.span<float>();
    std::vector<std::vector<float>> seen;
    harness.executor.backward(1, Write::kOverwrite, [&](std::int64_t elements) {
      seen.emplace_back(buffer.begin(), buffer.begin() + elements);
    });
    ASSERT_EQ(seen.size(), 6U) << "one call for each layer with parameters";
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (i > 0) {
        EXPECT_GT(seen[i].size(), seen[i - 1].size());
      }
      EXPECT_TRUE(std::equal(seen[i].begin(), seen[i].end(), buffer.begin()))
          << "written after it was called final";
    }
    EXPECT_EQ(seen.back().size(), buffer.size());
  }
}

TEST(Executor, ParametersThatTheLossDoesNotReachGetZeroGradients) {
  Graph graph;
  const NodeId x = graph.input("x", {6}), labels = graph.input("labels", {}, DType::kI32);
  const NodeId shared = graph.add("shared", layers::dense(5), {x});
  const NodeId logits = graph.add("other", layers::dense(3), {shared}),
               trained = graph.add("trained", layers::dense(3), {shared});
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(), {trained, labels}));
  Harness harness(std::move(graph), {.max_batch = 2});
  const RandomBatch batch(harness.graph, 2);
  for (float& value : harness.state.parameters.gradients.span<float>()) value = 9;
  std::int64_t last = 0;
  harness.executor.forward(batch.view(), true);
  harness.executor.backward(1, Write::kOverwrite, [&](std::int64_t elements) { last = elements; });
  EXPECT_EQ(last, harness.state.parameters.gradients.size());
  for (const engine::ModelState::Entry& entry : harness.state.entries) {
    double size = 0;
    for (const double value : to_doubles(harness.state.parameters.gradients.view(entry.slot)))
      size += std::abs(value);
    EXPECT_EQ(size == 0, entry.name.starts_with("other.")) << entry.name;
  }
}

TEST(Executor, CountsCorrectRowsAndSumsLosses) {
  const Graph identity = test_support::classifier(
      {3}, [](Graph& g, NodeId x) { return g.add("", layers::relu(), {x}); });
  const engine::Plan plan = engine::Plan::compile(identity, {.max_batch = 4});
  engine::ModelState state = engine::ModelState::allocate(identity, DType::kF32);
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  const std::vector<float> logits{1, 2, 0, 3, 3, 0, 0, 0, 0};  // the first of equal values counts
  const std::vector<std::int32_t> labels{1, 1, 0};
  const std::vector<std::int64_t> ids{0, 1, 2};
  const engine::BatchResult result =
      executor.forward({.count = 3, .samples = logits, .labels = labels, .sample_ids = ids}, true);
  EXPECT_EQ(result.correct, 2);
  EXPECT_EQ(result.rows, 3);
  const double expected =
      std::log(std::exp(1) + std::exp(2) + 1) - 2 + std::log(2 * std::exp(3) + 1) - 3 + std::log(3);
  EXPECT_NEAR(result.loss_sum, expected, 1e-5);
  EXPECT_NO_THROW(executor.backward(1, Write::kOverwrite, {}));
}

TEST(Executor, TakesLabelsPerPosition) {
  Graph graph;
  const NodeId x = graph.input("x", {2, 3}), labels = graph.input("labels", {2}, DType::kI32);
  const NodeId logits = graph.add("", layers::relu(), {x});
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(), {logits, labels}));
  Harness harness(std::move(graph), {.max_batch = 4});
  const RandomBatch batch(harness.graph, 3);
  EXPECT_EQ(harness.executor.forward(batch.view(), true).rows, 6);
}

TEST(Executor, RefusesWrongLabelsAndBatchesBeforeAnythingChanges) {
  Harness harness(image_graph(), {.max_batch = 4});
  RandomBatch batch(harness.graph, 4);
  const std::string state = bytes_of(harness.state);
  const auto message = [&](const engine::BatchView& view) -> std::string {
    return test_support::error_or<engine::InputError>([&] { harness.executor.forward(view, true); },
                                                      "no error");
  };
  batch.labels[2] = 5;
  EXPECT_VALUES(message(batch.view()), "label 5 sample 102 5 classes 0 4");
  batch.labels[2] = -1;
  EXPECT_VALUES(message(batch.view()), "label -1 sample 102 5 classes 0 4");
  batch.labels[2] = 0;
  engine::BatchView view = batch.view();
  view.samples = view.samples.first(100);
  EXPECT_VALUES(message(view), "4 samples 100 768");
  EXPECT_EQ(bytes_of(harness.state), state);
}

// A norm that is frozen between layers that are trained: its statistics are numbers like others.
TEST(Frozen, GradientsThroughAFrozenNormAgreeWithFiniteDifferences) {
  for (const bool fuse : {true, false}) {
    Graph graph = image_graph();
    ASSERT_EQ(graph.freeze([](const std::string& name) { return name.starts_with("n"); }), 4u);
    Harness h(std::move(graph), {.max_batch = 4, .dtype = DType::kF64, .fuse = fuse});
    h.state.initialize(h.graph, 1);
    const std::span<double> running = h.state.running.span<double>();
    for (std::size_t i = 0; i < running.size(); ++i)
      running[i] += 0.05 * static_cast<double>(i % 7);  // means are not 0, and variances not 1
    const std::string before = bytes_of(h.state.running) + bytes_of(h.state.counters);
    const RandomBatch batch(h.graph, 4);
    const std::vector<double> expected = gradients(h, batch.view());
    ASSERT_EQ(h.state.parameters.gradients.find("n1.weight"), std::nullopt);
    const auto slot = h.state.parameters.gradients.find("c0.weight");
    ASSERT_TRUE(slot.has_value());
    const std::int64_t offset = h.state.parameters.gradients.slots()[*slot].offset;
    double* values = h.state.parameters.values.span<double>().data() + offset;
    constexpr double kStep = 1e-6;
    for (int i = 0; i < 40; ++i) {
      const auto loss = [&](double shift) {
        const double own = values[i];
        values[i] += shift;
        const double sum = h.executor.forward(batch.view(), true).loss_sum;
        values[i] = own;
        return sum;
      };
      const double slope = (loss(kStep) - loss(-kStep)) / (2 * kStep);
      EXPECT_NEAR(expected[static_cast<std::size_t>(offset + i)], slope, 1e-6) << i;
    }
    EXPECT_EQ(bytes_of(h.state.running) + bytes_of(h.state.counters), before);
  }
}

}  // namespace
