// Recomputation: which segments are chosen, that the bits are the same, and how much memory it
// saves.
#include "engine/graph/memory/recomputation.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/engine/graph/plan_checker.h"

namespace {

using engine::Graph;
using engine::NodeId;
using engine::Plan;
using engine::PlanOptions;
using engine::PlanSegment;
using engine::SegmentTrial;
using engine::StepCost;
namespace layers = engine::layers;
using Segments = std::vector<PlanSegment>;

// Four blocks of four steps, each with 10 bytes and 5 operations; they keep 160 bytes. One value of
// 10 bytes enters a block, two enter its other steps.
std::vector<StepCost> four_blocks() {
  std::vector<StepCost> steps;
  for (int block = 0; block < 4; ++block)
    for (const std::size_t entering : {10, 20, 20, 20})
      steps.push_back({.bytes = 10, .entering = entering, .flops = 5});
  return steps;
}

// Values that enter the step after a segment are kept; the largest segment is in memory at once.
SegmentTrial trial(const std::vector<StepCost>& steps, const Segments& segments) {
  SegmentTrial found;
  for (const StepCost& step : steps) found.bytes += step.bytes;
  std::size_t largest = 0;
  for (const PlanSegment& segment : segments) {
    std::size_t bytes = 0;
    for (int i = segment.first; i < segment.end; ++i) {
      bytes += steps[static_cast<std::size_t>(i)].bytes;
      found.flops += steps[static_cast<std::size_t>(i)].flops;
    }
    found.bytes -= bytes;
    const auto end = static_cast<std::size_t>(segment.end);
    if (end < steps.size()) found.bytes += steps[end].entering;
    largest = std::max(largest, bytes);
  }
  found.bytes += largest;
  return found;
}

Segments choose(const std::vector<StepCost>& steps, std::size_t limit) {
  return engine::choose_segments(steps, limit,
                                 [&](const Segments& segments) { return trial(steps, segments); });
}

const Segments kBlocks{{0, 4}, {4, 8}, {8, 12}, {12, 16}};

TEST(ChooseSegments, CutsWhereFewValuesEnter) {
  // Three values that enter a block, and one block at a time.
  EXPECT_EQ(trial(four_blocks(), kBlocks).bytes, 70U);
  EXPECT_EQ(choose(four_blocks(), 70), kBlocks);
}

TEST(ChooseSegments, RecomputesNoMoreThanTheLimitAsksFor) {
  EXPECT_EQ(choose(four_blocks(), 110), (Segments{{0, 4}, {4, 8}, {12, 16}}));
}

TEST(ChooseSegments, PrefersStepsWithFewOperations) {
  std::vector<StepCost> steps = four_blocks();
  for (std::size_t i = 0; i < 8; ++i) steps[i].flops = 100;
  EXPECT_EQ(choose(steps, 140), (Segments{{8, 12}, {12, 16}}));
}

TEST(ChooseSegments, GivesTheSmallestIfNothingFits) {
  EXPECT_EQ(choose(four_blocks(), 0), kBlocks);
}

// A chain of 20 convolutions of one size.
Graph chain() {
  return test_support::classifier({16, 16, 4}, [](Graph& g, NodeId x) {
    for (int i = 0; i < 20; ++i)
      x = g.add("c" + std::to_string(i),
                layers::conv2d({.out_channels = 4, .kernel = 3, .padding = 1, .bias = false}), {x});
    return g.add("fc", layers::dense(3), {g.add("", layers::global_average_pool(), {x})});
  });
}

constexpr std::size_t kOne = 16 * 16 * 4 * sizeof(float) * 10;  // an output of 10 samples

std::size_t bytes_of(const Plan& plan) { return plan.arena_bytes + plan.scratch_bytes; }

TEST(Recomputation, FitsTheLimitWithFewerActivations) {
  const Graph graph = chain();
  const Plan whole = Plan::compile(graph, {.max_batch = 10});
  EXPECT_EQ(whole.recomputation.steps, 0);
  EXPECT_EQ(whole.recomputation.added_flops, 0);
  EXPECT_GE(whole.recomputation.kept_bytes, 19 * kOne);
  std::size_t before = bytes_of(whole);
  double added = 0;
  for (const std::size_t part : {16, 12, 10}) {
    const std::size_t limit = whole.scratch_bytes + part * kOne + 4096;
    const Plan plan = Plan::compile(graph, {.max_batch = 10, .memory_limit = limit});
    EXPECT_LE(bytes_of(plan), limit);
    EXPECT_LT(bytes_of(plan), before);
    EXPECT_GT(plan.recomputation.added_flops, added);  // more is computed twice, but never all
    EXPECT_LT(plan.recomputation.added_flops, 1. / 3);
    EXPECT_EQ(test_support::check_plan(plan), "");
    before = bytes_of(plan);
    added = plan.recomputation.added_flops;
  }
}

TEST(Recomputation, ALimitThatIsLargeEnoughChangesNothing) {
  const Graph graph = chain();
  const Plan whole = Plan::compile(graph, {.max_batch = 10});
  const Plan plan = Plan::compile(graph, {.max_batch = 10, .memory_limit = bytes_of(whole)});
  EXPECT_EQ(plan.recomputation.steps, 0);
  EXPECT_EQ(plan.arena_bytes, whole.arena_bytes);
  const Plan inference = Plan::compile(graph, {.training = false, .memory_limit = 1});
  EXPECT_TRUE(inference.recomputation.segments.empty());
}

TEST(Recomputation, NeverRepeatsTheLossAndTheLogits) {
  const Graph graph = chain();
  const Plan plan = Plan::compile(graph, {.max_batch = 10, .memory_limit = 1});
  EXPECT_FALSE(plan.steps.back().repeats);
  EXPECT_FALSE(plan.steps[plan.steps.size() - 2].repeats);
  EXPECT_GT(plan.recomputation.steps, 0);
}

class RecomputationOf : public testing::TestWithParam<int> {
 protected:
  Graph graph() const { return test_support::random_graph(static_cast<std::uint64_t>(GetParam())); }
};

// In every way to divide a plan, and in the one of a limit.
TEST_P(RecomputationOf, NeverOverlapsWhatIsStillNeeded) {
  const Graph made = graph();
  for (const bool fuse : {true, false}) {
    const PlanOptions options{.max_batch = 3, .fuse = fuse};
    const std::size_t whole = bytes_of(Plan::compile(made, options));
    for (const std::size_t limit : {std::size_t{1}, whole / 2, whole * 3 / 4, whole * 9 / 10}) {
      PlanOptions limited = options;
      limited.memory_limit = limit;
      const Plan plan = Plan::compile(made, limited);
      EXPECT_EQ(test_support::check_plan(plan), "") << "limit " << limit << ", fuse " << fuse;
      EXPECT_LE(bytes_of(plan), whole + whole / 4);
    }
  }
}

// Losses, gradients, running statistics and counters of two steps; the second one adds.
std::vector<double> two_steps(Graph graph, PlanOptions options, std::size_t limit) {
  options.memory_limit = limit;
  test_support::Harness harness(std::move(graph), options);
  const test_support::RandomBatch batch(harness.graph, options.max_batch);
  std::vector<double> found{harness.executor.forward(batch.view(), true).loss_sum};
  harness.executor.backward(1, engine::Write::kOverwrite, {});
  found.push_back(harness.executor.forward(batch.slice(0, 2), true).loss_sum);
  harness.executor.backward(0.5, engine::Write::kAdd, {});
  for (const engine::FlatBuffer* buffer :
       {&harness.state.parameters.gradients, &harness.state.running}) {
    const std::vector<double> values = test_support::to_doubles(*buffer);
    found.insert(found.end(), values.begin(), values.end());
  }
  const auto counters = harness.state.counters.flat();
  for (std::int64_t i = 0; i < counters.count(); ++i)
    found.push_back(static_cast<double>(counters.as<std::int64_t>()[i]));
  return found;
}

TEST_P(RecomputationOf, GivesTheSameBits) {
  for (const bool fuse : {true, false})
    for (const engine::DType dtype : {engine::DType::kF32, engine::DType::kF64}) {
      const PlanOptions options{.max_batch = 3, .dtype = dtype, .fuse = fuse};
      EXPECT_EQ(two_steps(graph(), options, 1), two_steps(graph(), options, 0));
    }
}

INSTANTIATE_TEST_SUITE_P(RandomGraphs, RecomputationOf, testing::Range(0, 40));

}  // namespace
