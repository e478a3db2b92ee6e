// Batch normalization over all replicas equals one process on the whole batch, for any split of it;
// and the tree that sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "backends/group.h"
#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/time_limits.h"

namespace {

using engine::Graph;
using engine::NodeId;
using test_support::Harness;
using test_support::RandomBatch;
namespace layers = engine::layers;

// A convolution, the norm with a fused addition and ReLU, a second norm behind a pool (one value a
// sample and channel).
Graph model(std::int64_t channels) {
  return test_support::classifier({4, 3, 2}, [=](Graph& g, NodeId x) {
    const NodeId first =
        g.add("first", layers::conv2d({.out_channels = channels, .kernel = 1}), {x});
    const NodeId inner = g.add(
        "inner", layers::conv2d({.out_channels = channels, .kernel = 3, .padding = 1}), {first});
    const NodeId norm = g.add("norm", layers::batch_norm2d(), {inner});
    const NodeId sum = g.add("", layers::relu(), {g.add("", layers::add(), {norm, first})});
    const NodeId pooled =
        g.add("last", layers::batch_norm2d({.eps = 1e-3, .momentum = 0.3}),
              {g.add("", layers::average_pool2d({.window = 3, .stride = 4}), {sum})});
    return g.add("head", layers::dense(4), {g.add("", layers::flatten(), {pooled})});
  });
}

struct StepOutcome {
  std::vector<double> gradients, running;
  double loss = 0;
};

std::vector<double> added(std::vector<double> a, const std::vector<double>& b) {
  if (a.empty()) return b;
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Two steps, so that running statistics are mixed twice.
StepOutcome two_steps(Harness& harness, const RandomBatch& one, const RandomBatch& two,
                      std::int64_t first, std::int64_t count) {
  StepOutcome outcome;
  for (const RandomBatch* batch : {&one, &two}) {
    outcome.loss += harness.executor.forward(batch->slice(first, count), true).loss_sum;
    harness.executor.backward(1.0 / static_cast<double>(one.count), engine::Write::kOverwrite, {});
    outcome.gradients =
        added(outcome.gradients, test_support::to_doubles(harness.state.parameters.gradients));
  }
  outcome.running = test_support::to_doubles(harness.state.running);
  return outcome;
}

struct Split {
  std::vector<std::int64_t> counts;
};

std::vector<StepOutcome> on_ranks(const std::vector<std::int64_t>& counts, std::int64_t channels,
                                  engine::DType dtype, const RandomBatch& one,
                                  const RandomBatch& two) {
  auto groups = backends::make_inproc_groups(static_cast<int>(counts.size()),
                                             test_support::deadline_ms(20'000));
  std::vector<StepOutcome> outcomes(counts.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < counts.size(); ++r)
    ranks.emplace_back([&, r] {
      const auto communicator = groups[r]->make_communicator();
      const auto statistics = engine::make_rank_statistics(*communicator);
      Graph graph = model(channels);
      ASSERT_EQ(graph.synchronize_statistics(), 2);
      Harness harness(std::move(graph),
                      {.max_batch = std::max<std::int64_t>(1, counts[r]), .dtype = dtype});
      harness.executor.set_replicas(statistics.get());
      const std::int64_t first = std::accumulate(
          counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(r), std::int64_t{0});
      outcomes[r] = two_steps(harness, one, two, first, counts[r]);
    });
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

TEST(SyncBatchNorm, EqualsOneProcessForAnySplitOfTheBatch) {
  for (const std::int64_t channels : {1, 7, 65})
    for (const std::vector<std::int64_t>& counts : std::vector<std::vector<std::int64_t>>{
             {4, 4}, {1, 7}, {5, 0, 3}, {0, 0, 8}, {2, 1, 0, 4, 1}}) {
      SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(counts.size()) +
                   " ranks, the first with " + std::to_string(counts[0]));
      Harness whole(model(channels), {.max_batch = 8, .dtype = engine::DType::kF64});
      const RandomBatch one(whole.graph, 8, 3), two(whole.graph, 8, 4);
      const StepOutcome expected = two_steps(whole, one, two, 0, 8);
      const std::vector<StepOutcome> outcomes =
          on_ranks(counts, channels, engine::DType::kF64, one, two);
      std::vector<double> gradients;
      double loss = 0;
      for (const StepOutcome& o : outcomes) {
        gradients = added(gradients, o.gradients);
        loss += o.loss;
        EXPECT_EQ(o.running, outcomes[0].running) << "running statistics differ between ranks";
      }
      EXPECT_LT(test_support::difference(gradients, expected.gradients), 1e-12);
      EXPECT_LT(test_support::difference(outcomes[0].running, expected.running), 1e-12);
      EXPECT_NEAR(loss, expected.loss, 1e-12 * std::abs(expected.loss));
    }
}

TEST(SyncBatchNorm, InFloat32IsCloseToo) {
  Harness whole(model(65), {.max_batch = 8});
  const RandomBatch one(whole.graph, 8, 3), two(whole.graph, 8, 4);
  const StepOutcome expected = two_steps(whole, one, two, 0, 8);
  const std::vector<StepOutcome> outcomes =
      on_ranks({1, 5, 0, 2}, 65, engine::DType::kF32, one, two);
  std::vector<double> gradients;
  for (const StepOutcome& o : outcomes) gradients = added(gradients, o.gradients);
  EXPECT_LT(test_support::difference(gradients, expected.gradients), 2e-5);
  EXPECT_LT(test_support::difference(outcomes[0].running, expected.running), 1e-6);
}

TEST(SyncBatchNorm, WithoutOtherReplicasIsBatchNorm) {
  Graph graph = model(7);
  EXPECT_EQ(layers_that_use_replicas(graph), 0);
  EXPECT_EQ(graph.synchronize_statistics(), 2);
  Harness alone(std::move(graph), {.max_batch = 8}), plain(model(7), {.max_batch = 8});
  const RandomBatch one(plain.graph, 8, 3), two(plain.graph, 8, 4);
  const StepOutcome a = two_steps(alone, one, two, 0, 8), b = two_steps(plain, one, two, 0, 8);
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.running, b.running);
}

// The test above can fail: plain layers on two ranks are not one process.
TEST(SyncBatchNorm, PlainBatchNormOfPartsIsSomethingElse) {
  Harness whole(model(7), {.max_batch = 8, .dtype = engine::DType::kF64});
  Harness left(model(7), {.max_batch = 8, .dtype = engine::DType::kF64}),
      right(model(7), {.max_batch = 8, .dtype = engine::DType::kF64});
  const RandomBatch one(whole.graph, 8, 3), two(whole.graph, 8, 4);
  const StepOutcome expected = two_steps(whole, one, two, 0, 8);
  const StepOutcome a = two_steps(left, one, two, 0, 4), b = two_steps(right, one, two, 4, 4);
  EXPECT_GT(test_support::difference(added(a.gradients, b.gradients), expected.gradients), 1e-4);
}

// PyTorch refuses one value per channel; here the output is the bias, nothing goes back, and the
// variance keeps what it had.
TEST(BatchNorm, OfOneValueIsTheBiasAndLeavesTheVarianceAlone) {
  Harness harness(model(3), {.max_batch = 2, .dtype = engine::DType::kF64});
  const RandomBatch batch(harness.graph, 1, 5);
  harness.executor.forward(batch.view(), true);
  harness.executor.backward(1, engine::Write::kOverwrite, {});
  for (const double g : test_support::to_doubles(harness.state.parameters.gradients))
    EXPECT_TRUE(std::isfinite(g));
  for (const engine::ModelState::Entry& entry : harness.state.entries) {
    const bool one_value = entry.name == "last.running_var";
    if (!one_value && entry.name != "norm.running_var") continue;
    for (const double v : test_support::to_doubles(harness.state.view(entry)))
      EXPECT_EQ(v == 1, one_value) << entry.name;
  }
}

TEST(ShardStatistics, ShardsExchangeAndAFailureWakesAll) {
  engine::ComputeSlots slots(2);
  engine::ShardStatistics statistics(engine::TreePartition(4, 1), nullptr, slots);
  std::vector<std::vector<double>> moments(4);
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (int s = 0; s < 4; ++s)
    threads.emplace_back([&, s] {
      slots.acquire();
      std::vector<double>& own = moments[static_cast<std::size_t>(s)] = {
          static_cast<double>(s), 0.0};  // s times the value s
      EXPECT_EQ(statistics.of_shard(s).merge_moments(s, own), 6);
      std::vector<double> sums{1, static_cast<double>(s)};
      EXPECT_EQ(statistics.of_shard(s).add(s, sums), 6);
      EXPECT_EQ(sums, (std::vector<double>{4, 6}));
      try {
        if (s == 3) throw std::runtime_error("shard 3");
        statistics.of_shard(s).add(s, sums);
      } catch (const std::runtime_error& error) {
        errors[static_cast<std::size_t>(s)] = error.what();
        if (s == 3) statistics.fail(std::current_exception());
      }
      slots.release();
    });
  for (std::thread& thread : threads) thread.join();
  for (int s = 0; s < 4; ++s) {
    EXPECT_NEAR(moments[static_cast<std::size_t>(s)][0], 14.0 / 6, 1e-15);
    EXPECT_NEAR(moments[static_cast<std::size_t>(s)][1], 36 - 14.0 * 14 / 6, 1e-13);
    EXPECT_EQ(errors[static_cast<std::size_t>(s)], "shard 3");
  }
}

TEST(FoldTree, IsTheSameTreeWhereverRunsAreFoldedFirst) {
  std::vector<float> parts(16);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = 1.0f / static_cast<float>(3 * i + 1);
  const auto fold = [](std::vector<float> values) {
    engine::reduce_tree(values.size(),
                        [&](std::size_t a, std::size_t b) { values[a] += values[b]; });
    return values[0];
  };
  for (const std::size_t run : {1, 2, 4, 8, 16}) {
    std::vector<float> runs;
    for (std::size_t first = 0; first < parts.size(); first += run)
      runs.push_back(fold({parts.begin() + static_cast<std::ptrdiff_t>(first),
                           parts.begin() + static_cast<std::ptrdiff_t>(first + run)}));
    EXPECT_EQ(fold(runs), fold(parts)) << run;
  }
  EXPECT_NE(fold(parts), std::accumulate(parts.begin(), parts.end(), 0.0f))
      << "these numbers show no order";
}

}  // namespace
