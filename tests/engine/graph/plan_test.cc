// Plans: fusion, memory that is never shared at the wrong time, and how much of it there is.
#include "engine/graph/plan.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/core/arena.h"
#include "engine/graph/memory/memory_layout.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/engine/graph/plan_checker.h"

namespace {

using engine::Graph;
using engine::NodeId;
using engine::Plan;
using engine::PlanTensor;
namespace layers = engine::layers;

NodeId convolve(Graph& g, const std::string& name, NodeId x) {
  return g.add(name, layers::conv2d({.out_channels = 4, .kernel = 3, .padding = 1, .bias = false}),
               {x});
}

NodeId head(Graph& g, NodeId x) {
  return g.add("fc", layers::dense(3), {g.add("", layers::global_average_pool(), {x})});
}

// A residual block with a plain shortcut, then one with a convolution in the shortcut.
Graph residual_graph() {
  return test_support::classifier({8, 8, 2}, [](Graph& g, NodeId x) {
    NodeId at =
        g.add("", layers::relu(), {g.add("n0", layers::batch_norm2d(), {convolve(g, "c0", x)})});
    const NodeId n1 = g.add("n1", layers::batch_norm2d(), {convolve(g, "c1", at)});
    at = g.add("", layers::relu(), {g.add("", layers::add(), {n1, at})});
    const NodeId n2 = g.add("n2", layers::batch_norm2d(), {convolve(g, "c2", at)});
    const NodeId down = g.add("nd", layers::batch_norm2d(), {convolve(g, "cd", at)});
    return head(g, g.add("", layers::relu(), {g.add("", layers::add(), {n2, down})}));
  });
}

std::vector<std::string> step_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const engine::PlanStep& step : plan.steps) {
    std::string name = plan.graph->nodes()[static_cast<std::size_t>(step.node)].name;
    if (name.empty()) name = step.layer->kind();
    names.push_back(name + (step.residual >= 0 ? "+add" : "") + (step.relu ? "+relu" : ""));
  }
  return names;
}

TEST(Fusion, FoldsReluAndAdditionIntoBatchNorm) {
  const Graph graph = residual_graph();
  EXPECT_EQ(step_names(Plan::compile(graph, {})),
            (std::vector<std::string>{"c0", "n0+relu", "c1", "n1+add+relu", "c2", "n2", "cd",
                                      "nd+add+relu", "global_average_pool", "fc", "loss"}));
  EXPECT_EQ(Plan::compile(graph, {.fuse = false}).steps.size(), graph.nodes().size() - 2);
}

TEST(Fusion, LeavesAloneWhatOthersReadOrWhatOffersNothing) {
  const Graph graph = test_support::classifier({8, 8, 2}, [](Graph& g, NodeId x) {
    const NodeId c =
        g.add("", layers::relu(), {convolve(g, "c", x)});      // a convolution offers nothing
    const NodeId n = g.add("n", layers::batch_norm2d(), {c});  // read twice
    return head(g, g.add("", layers::add(), {g.add("", layers::relu(), {n}), n}));
  });
  EXPECT_EQ(step_names(Plan::compile(graph, {})),
            (std::vector<std::string>{"c", "relu", "n", "relu", "add", "global_average_pool", "fc",
                                      "loss"}));
}

TEST(Fusion, NeverFoldsTheLogitsAway) {
  const Graph graph = test_support::classifier({4}, [](Graph& g, NodeId x) {
    const NodeId logits = g.add("fc", layers::dense(3), {x});
    return logits;
  });
  EXPECT_EQ(step_names(Plan::compile(graph, {})), (std::vector<std::string>{"fc", "loss"}));
}

TEST(Plan, FirstLayerHasNoInputGradientAndInputsAreReadInPlace) {
  const Graph graph = residual_graph();
  const Plan single = Plan::compile(graph, {}),
             twice = Plan::compile(graph, {.dtype = engine::DType::kF64});
  EXPECT_EQ(single.tensors[0].gradient_offset, PlanTensor::kNone);
  EXPECT_EQ(single.tensors[0].offset, PlanTensor::kNone);
  EXPECT_NE(twice.tensors[0].offset, PlanTensor::kNone);
  EXPECT_EQ(twice.tensors[1].offset, PlanTensor::kNone);
}

TEST(Plan, FlattenOfOneChannelIsNoStep) {
  const Graph graph = test_support::classifier({4, 4, 1}, [](Graph& g, NodeId x) {
    return g.add("fc", layers::dense(3), {g.add("", layers::flatten(), {x})});
  });
  EXPECT_EQ(step_names(Plan::compile(graph, {})), (std::vector<std::string>{"fc", "loss"}));
}

TEST(Plan, GradientsCompleteFromTheFront) {
  const Graph graph = residual_graph();
  const Plan plan = Plan::compile(graph, {});
  const engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  EXPECT_EQ(plan.steps.front().gradients_complete, state.parameters.gradients.size());
  EXPECT_EQ(plan.steps.back().gradients_complete, 0);
  std::int64_t before = 0;
  for (std::size_t i = plan.steps.size(); i-- > 0; before = plan.steps[i].gradients_complete)
    EXPECT_GE(plan.steps[i].gradients_complete, before);
}

class PlanMemory : public testing::TestWithParam<int> {};

TEST_P(PlanMemory, NeverOverlapsWhatIsStillNeeded) {
  const Graph graph = test_support::random_graph(static_cast<std::uint64_t>(GetParam()));
  for (const bool training : {true, false})
    for (const bool fuse : {true, false})
      for (const engine::DType dtype : {engine::DType::kF32, engine::DType::kF64}) {
        const Plan plan = Plan::compile(
            graph, {.max_batch = 3, .dtype = dtype, .training = training, .fuse = fuse});
        EXPECT_EQ(test_support::check_plan(plan), "")
            << "training " << training << ", fuse " << fuse;
      }
}

INSTANTIATE_TEST_SUITE_P(RandomGraphs, PlanMemory, testing::Range(0, 60));

TEST(PlanChecker, NoticesSharedMemory) {
  const Graph graph = residual_graph();
  Plan plan = Plan::compile(graph, {.fuse = false});
  ASSERT_EQ(test_support::check_plan(plan), "");
  // The second convolution's output over the first norm's input, which backward still needs.
  const Plan good = plan;
  plan.tensors[static_cast<std::size_t>(plan.steps[3].output)].offset =
      plan.tensors[static_cast<std::size_t>(plan.steps[0].output)].offset;
  EXPECT_NE(test_support::check_plan(plan), "");
  plan = good;
  plan.steps[1].saved_offset = plan.steps[4].saved_offset;
  EXPECT_NE(test_support::check_plan(plan), "");
  plan = good;
  plan.steps[3].input_writes[0] =
      engine::Write::kOverwrite;  // the shortcut's reader has written there first
  EXPECT_NE(test_support::check_plan(plan), "");
}

TEST(Plan, InferenceKeepsOnlyWhatIsStillRead) {
  // A chain of 20 convolutions of one size needs two buffers, whatever its length.
  const Graph graph = test_support::classifier({16, 16, 4}, [](Graph& g, NodeId x) {
    for (int i = 0; i < 20; ++i) x = convolve(g, "c" + std::to_string(i), x);
    return head(g, x);
  });
  const std::size_t one = 16 * 16 * 4 * sizeof(float) * 10;
  EXPECT_LT(Plan::compile(graph, {.max_batch = 10, .training = false}).arena_bytes, 2 * one + 4096);
  // Training keeps the 19 inputs that backward needs and the last output, and two gradients at a
  // time.
  EXPECT_LT(Plan::compile(graph, {.max_batch = 10}).arena_bytes, 22 * one + 4096);
}

// softmax - target replaces the logits, and their gradient replaces that.
TEST(Plan, TrainingKeepsOneMatrixOfTheSizeOfTheLogits) {
  constexpr int kClasses = 100'000;
  const Graph graph = test_support::classifier(
      {2}, [](Graph& g, NodeId x) { return g.add("fc", layers::dense(kClasses), {x}); });
  const std::size_t one = kClasses * sizeof(float) * 10;
  const Plan plan = Plan::compile(graph, {.max_batch = 10});
  EXPECT_LT(plan.arena_bytes, one + 4096);
  EXPECT_EQ(test_support::check_plan(plan), "");
  // Whoever watches the logits finds them after a step.
  const Plan watching = Plan::compile(graph, {.max_batch = 10, .watched = graph.logits()});
  EXPECT_GT(watching.arena_bytes, 2 * one);
  EXPECT_EQ(test_support::check_plan(watching), "");
}

TEST(Plan, LogitsThatBackwardNeedsAreNotReplaced) {
  const Graph graph = test_support::classifier({2}, [](Graph& g, NodeId x) {
    return g.add("", layers::relu(), {g.add("fc", layers::dense(1000), {x})});
  });
  const Plan plan = Plan::compile(graph, {.max_batch = 10});
  const engine::PlanStep& loss = plan.steps.back();
  EXPECT_NE(loss.saved_offset, plan.tensors[static_cast<std::size_t>(graph.logits())].offset);
  EXPECT_EQ(test_support::check_plan(plan), "");
}

// On the CPU: half the memory, but for the loss; as a whole or not at all.
TEST(Plan, StoresBf16WhereAllLayersCan) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  const engine::PlanOptions rounded{.max_batch = 64, .products = engine::Products::kBF16};
  const Graph images = residual_graph();
  const Plan halves = Plan::compile(images, rounded),
             floats = Plan::compile(images, {.max_batch = 64});
  EXPECT_EQ(floats.storage, engine::DType::kF32);
  EXPECT_EQ(halves.storage, engine::DType::kBF16);
  EXPECT_EQ(halves.tensors[static_cast<std::size_t>(halves.logits)].dtype, engine::DType::kBF16);
  EXPECT_EQ(halves.tensors[static_cast<std::size_t>(halves.loss)].dtype, engine::DType::kF32);
  // What f32 reads where the caller has it, bf16 has a copy of.
  EXPECT_LT(halves.arena_bytes, floats.arena_bytes * 6 / 10);
  const Graph text = test_support::text_model(4, [](Graph& g, NodeId x) {
    return g.add("fc", layers::dense(5), {g.add("e", layers::embedding(5, 8), {x})});
  });
  EXPECT_EQ(Plan::compile(text, rounded).storage, engine::DType::kF32);
}

TEST(MemoryLayout, RandomBlocksNeverOverlapAndReuseMemory) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<engine::MemoryBlock> blocks;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random() % 40);
      blocks.push_back({.bytes = 1 + random() % 5000,
                        .first = first,
                        .last = first + static_cast<int>(random() % 12)});
    }
    const std::size_t arena = engine::place_blocks(blocks);
    std::size_t busiest = 0;
    for (int time = 0; time < 52; ++time) {
      std::size_t live = 0;
      for (const auto& block : blocks)
        if (block.first <= time && time <= block.last) live += engine::align_up(block.bytes);
      busiest = std::max(busiest, live);
    }
    EXPECT_LE(arena, busiest + busiest / 4);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(blocks[a].offset % engine::kAlignment, 0U);
      for (std::size_t b = 0; b < a; ++b) {
        const bool overlap = blocks[a].first <= blocks[b].last && blocks[b].first <= blocks[a].last;
        const bool apart = blocks[a].offset + blocks[a].bytes <= blocks[b].offset ||
                           blocks[b].offset + blocks[b].bytes <= blocks[a].offset;
        EXPECT_TRUE(!overlap || apart);
      }
    }
  }
}

}  // namespace
