// Layers of models of text: gradients against central differences in float64, shapes and their
// messages, tied parameters.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/engine/graph/plan_checker.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using engine::Graph;
using engine::NodeId;
using engine::Shape;
namespace ops = engine::ops;
namespace layers = engine::layers;

constexpr std::int64_t kPositions = 6, kVocabulary = 5, kWidth = 8;

NodeId embed(Graph& graph, NodeId tokens) {
  return graph.add("wte", layers::embedding(kVocabulary, kWidth), {tokens});
}
NodeId text_head(Graph& graph, NodeId x) {
  return graph.add("head", layers::dense(kVocabulary), {x});
}

struct TextLayerCase {
  const char* name;
  NodeId (*wire)(Graph& graph,
                 NodeId x);  // between the embedding of the tokens, [6, 8], and the logits
};
void PrintTo(const TextLayerCase& each, std::ostream* out) {
  *out << each.name;
}  // for the test library

constexpr TextLayerCase kTextLayerCases[] = {
    {"embedding", [](Graph& g, NodeId x) { return text_head(g, x); }},
    {"position_embedding",
     [](Graph& g, NodeId x) {
       return text_head(g, g.add("wpe", layers::position_embedding(6), {x}));
     }},
    {"position_embedding_of_a_longer_context",
     [](Graph& g, NodeId x) {
       return text_head(g, g.add("wpe", layers::position_embedding(9), {x}));
     }},
    {"layer_norm",
     [](Graph& g, NodeId x) { return text_head(g, g.add("ln", layers::layer_norm(), {x})); }},
    {"rms_norm",
     [](Graph& g, NodeId x) { return text_head(g, g.add("rms", layers::rms_norm(), {x})); }},
    {"rms_norm_read_twice",  // its input's gradient is added to
     [](Graph& g, NodeId x) {
       const NodeId rms = g.add("rms", layers::rms_norm(0.1), {x});
       return text_head(g, g.add("", layers::add(), {rms, x}));
     }},
    {"gelu_exact", [](Graph& g, NodeId x) { return text_head(g, g.add("", layers::gelu(), {x})); }},
    {"gelu_tanh",
     [](Graph& g, NodeId x) {
       return text_head(g, g.add("", layers::gelu(ops::GeluKind::kTanh), {x}));
     }},
    {"dense_of_positions",
     [](Graph& g, NodeId x) {
       return text_head(g, g.add("", layers::relu(), {g.add("fc", layers::dense(7), {x})}));
     }},
    {"dropout",
     [](Graph& g, NodeId x) { return text_head(g, g.add("", layers::dropout(0.3), {x})); }},
    {"attention_of_one_head",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(12), {x});
       return text_head(g, g.add("", layers::causal_self_attention(1), {qkv}));
     }},
    {"attention_by_products",
     [](Graph& g, NodeId x) {
       const NodeId q = g.add("q", layers::dense(7), {x}), k = g.add("k", layers::dense(7), {x});
       const NodeId scores =
           g.add("", layers::matmul({.transpose_second = true, .scale = 0.3}), {q, k});
       return text_head(g,
                        g.add("", layers::matmul(), {g.add("", layers::softmax(), {scores}), x}));
     }},
    {"attention_of_three_heads",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(27), {x});
       return text_head(g, g.add("", layers::causal_self_attention(3), {qkv}));
     }},
    {"rotary",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(36), {x});
       const NodeId turned = g.add("", layers::rotary({.heads = 2}), {qkv});
       return text_head(g, g.add("", layers::causal_self_attention(2), {turned}));
     }},
    {"rotary_of_grouped_heads_read_twice",  // neither it nor its gradient runs in place
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(32), {x});
       const NodeId turned = g.add(
           "", layers::rotary({.heads = 4, .kv_heads = 2, .frequencies = {.theta = 30}}), {qkv});
       return text_head(g, g.add("", layers::add(), {qkv, turned}));
     }},
    {"rotary_of_a_longer_context",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       const ops::RotaryFrequencies scaled{.theta = 100, .factor = 8, .original_context = 24};
       const NodeId turned = g.add("", layers::rotary({.heads = 1, .frequencies = scaled}), {qkv});
       return text_head(g, g.add("", layers::causal_self_attention(1), {turned}));
     }},
    {"attention_of_grouped_heads",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       return text_head(
           g, g.add("", layers::causal_self_attention({.heads = 4, .kv_heads = 2}), {qkv}));
     }},
    {"head_rms_norm",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       const NodeId normed = g.add("n", layers::head_rms_norm({.heads = 2}), {qkv});
       return text_head(g, g.add("", layers::causal_self_attention(2), {normed}));
     }},
    {"head_rms_norm_of_grouped_heads_read_twice",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(32), {x});
       const NodeId normed =
           g.add("n", layers::head_rms_norm({.heads = 4, .kv_heads = 2, .eps = 0.1}), {qkv});
       return text_head(g, g.add("", layers::add(), {qkv, normed}));
     }},
    {"qwen3_block",
     [](Graph& g, NodeId x) {
       const NodeId qkv =
           g.add("qkv", layers::dense(32, false), {g.add("rms", layers::rms_norm(), {x})});
       const NodeId normed =
           g.add("attn", layers::head_rms_norm({.heads = 4, .kv_heads = 2}), {qkv});
       const NodeId turned = g.add("", layers::rotary({.heads = 4, .kv_heads = 2}), {normed});
       const NodeId mixed =
           g.add("", layers::causal_self_attention({.heads = 4, .kv_heads = 2}), {turned});
       const NodeId sum =
           g.add("", layers::add(), {g.add("o", layers::dense(8, false), {mixed}), x});
       const NodeId y = g.add("rms2", layers::rms_norm(), {sum});
       const NodeId gate = g.add("", layers::activation({ops::ActivationKind::kSilu}),
                                 {g.add("gate", layers::dense(12, false), {y})});
       const NodeId wide =
           g.add("", layers::multiply(), {gate, g.add("up", layers::dense(12, false), {y})});
       return text_head(
           g, g.add("", layers::add(), {g.add("down", layers::dense(8, false), {wide}), sum}));
     }},
    {"self_attention",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       return text_head(g, g.add("", layers::self_attention({.heads = 4, .kv_heads = 2}), {qkv}));
     }},
    {"self_attention_with_dropout",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       return text_head(g, g.add("", layers::self_attention({.heads = 2, .dropout = 0.4}), {qkv}));
     }},
    {"attention_with_dropout",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {x});
       return text_head(g, g.add("", layers::causal_self_attention(2, 0.4), {qkv}));
     }},
    {"attention_read_twice",  // its input's gradient is added to
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(12), {x});
       const NodeId one = g.add("a", layers::causal_self_attention(2), {qkv});
       const NodeId two = g.add("b", layers::causal_self_attention(1), {qkv});
       return text_head(g, g.add("", layers::add(), {one, two}));
     }},
    {"tied_output",
     [](Graph& g, NodeId x) {
       const NodeId ln = g.add("ln", layers::layer_norm(), {x});
       return g.add_tied("", layers::dense(kVocabulary, false), {ln}, x);
     }},
    {"tied_three_times",
     [](Graph& g, NodeId x) {
       const NodeId first = g.add("fc", layers::dense(kWidth), {x});
       const NodeId second =
           g.add_tied("again", layers::dense(kWidth), {g.add("", layers::gelu(), {first})}, first);
       const NodeId third = g.add_tied("", layers::dense(kWidth), {second}, first);
       return text_head(g, g.add("", layers::add(), {third, x}));
     }},
    {"block",
     [](Graph& g, NodeId x) {
       const NodeId qkv = g.add("qkv", layers::dense(24), {g.add("ln", layers::layer_norm(), {x})});
       const NodeId branch =
           g.add("out", layers::dense(8), {g.add("", layers::causal_self_attention(2), {qkv})});
       const NodeId sum = g.add("", layers::add(), {branch, x});
       const NodeId mlp =
           g.add("fc", layers::dense(16), {g.add("ln2", layers::layer_norm(), {sum})});
       const NodeId end =
           g.add("proj", layers::dense(8), {g.add("", layers::gelu(ops::GeluKind::kTanh), {mlp})});
       return text_head(g, g.add("", layers::add(), {end, sum}));
     }},
};

class TextLayerGradient : public testing::TestWithParam<TextLayerCase> {
 protected:
  static Graph graph() {
    return test_support::text_model(
        kPositions, [](Graph& g, NodeId tokens) { return GetParam().wire(g, embed(g, tokens)); });
  }
};

TEST_P(TextLayerGradient, AgreesWithFiniteDifferences) {
  for (const bool fuse : {true, false})
    EXPECT_LT(test_support::gradient_error(graph(), 3, {.max_batch = 4, .fuse = fuse}), 1e-7)
        << "fuse " << fuse;
}

TEST_P(TextLayerGradient, OfFloat32IsThatOfFloat64) {
  test_support::Harness single(graph(), {.max_batch = 5}),
      twice(graph(), {.max_batch = 5, .dtype = engine::DType::kF64});
  const test_support::RandomBatch batch(single.graph, 5);
  const auto without_gaps = [](const test_support::Harness& h) {
    std::vector<double> all;
    for (std::size_t slot = 0; slot < h.state.parameters.gradients.slots().size(); ++slot)
      for (const double value : test_support::to_doubles(h.state.parameters.gradients.view(slot)))
        all.push_back(value);
    return all;
  };
  test_support::gradients(single, batch.view());
  test_support::gradients(twice, batch.view());
  EXPECT_LT(test_support::difference(without_gaps(single), without_gaps(twice)), 2e-5);
}

TEST_P(TextLayerGradient, AddsUpOverMicroBatchesAndOfNothingIsZero) {
  test_support::Harness harness(graph(), {.max_batch = 4, .dtype = engine::DType::kF64});
  const test_support::RandomBatch batch(harness.graph, 4);
  const std::vector<double> whole = test_support::gradients(harness, batch.view());
  test_support::gradients(harness, batch.slice(0, 1));
  harness.executor.forward(batch.slice(1, 3), true);
  harness.executor.backward(1, engine::Write::kAdd, {});
  EXPECT_LT(
      test_support::difference(test_support::to_doubles(harness.state.parameters.gradients), whole),
      1e-12);
  for (const double value : test_support::gradients(harness, batch.slice(0, 0)))
    ASSERT_EQ(value, 0);
}

TEST_P(TextLayerGradient, PlanNeverOverlapsWhatIsStillNeeded) {
  const Graph g = graph();
  for (const bool training : {true, false})
    EXPECT_EQ(
        test_support::check_plan(engine::Plan::compile(g, {.max_batch = 3, .training = training})),
        "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, TextLayerGradient, testing::ValuesIn(kTextLayerCases),
                         [](const auto& each) { return std::string(each.param.name); });

// The message of the error that adding the layer throws.
std::string error_of(engine::LayerPtr layer, const Shape& shape,
                     engine::DType dtype = engine::DType::kF32) {
  Graph graph;
  return test_support::error_or<engine::Error>(
      [&] { graph.add("x", std::move(layer), {graph.input("in", shape, dtype)}); }, "no error");
}

TEST(TextLayerShapes, MessagesNameTheLayerAndBothShapes) {
  EXPECT_VALUES(error_of(layers::embedding(9, 4), {3, 2}, engine::DType::kI32),
                "'x' (embedding): rank 1 [positions], [3, 2]");
  struct Rejected {
    engine::LayerPtr layer;
    engine::Shape input;
    std::string values;
  };
  Rejected cases[] = {
      {layers::embedding(9, 4), {3}, "(embedding): i32 0, f32 'in'"},
      {layers::position_embedding(8), {9, 4}, "(position_embedding): 8 positions, [9, 4]"},
      {layers::causal_self_attention(5),
       {9, 24},
       "(causal_self_attention): [positions, width] 5 heads 5 keys [9, 24]"},
      {layers::causal_self_attention({.heads = 2, .head_size = 8}),
       {9, 24},
       "(causal_self_attention): heads 8, 4 [9, 24]"},
      {layers::head_rms_norm({.heads = 2, .kv_heads = 1}),
       {9, 23},
       "(head_rms_norm): [positions, width] 2 heads 1 keys [9, 23]"},
      {layers::rotary({.heads = 4, .kv_heads = 2}),
       {9, 36},
       "(rotary): [positions, width] 4 heads 2 keys [9, 36]"},
      {layers::rotary({.heads = 4, .kv_heads = 2}), {9, 40}, "(rotary): heads even 256, 5"},
      {layers::layer_norm(), {}, "(layer_norm): rank 1 []"},
      {layers::rms_norm(), {}, "(rms_norm): rank 1 []"}};
  for (Rejected& c : cases) EXPECT_VALUES(error_of(std::move(c.layer), c.input), "'x' " + c.values);
}

TEST(TextLayerOptions, OutOfRangeIsRefused) {
  EXPECT_THROW(layers::embedding(0, 4), engine::ModelError);
  EXPECT_THROW(layers::position_embedding(0), engine::ModelError);
  EXPECT_THROW(layers::layer_norm(0), engine::ModelError);
  EXPECT_THROW(layers::rms_norm(0), engine::ModelError);
  EXPECT_THROW(layers::causal_self_attention(0), engine::ModelError);
  EXPECT_THROW(layers::causal_self_attention({.heads = 4, .kv_heads = 3}), engine::ModelError);
  EXPECT_THROW(layers::causal_self_attention({.heads = 4, .head_size = -1}), engine::ModelError);
  EXPECT_THROW(layers::head_rms_norm({.heads = 0}), engine::ModelError);
  EXPECT_THROW(layers::head_rms_norm({.heads = 4, .eps = 0}), engine::ModelError);
  EXPECT_THROW(layers::rotary({.heads = 0}), engine::ModelError);
  EXPECT_THROW(layers::rotary({.heads = 4, .kv_heads = 3}), engine::ModelError);
  EXPECT_THROW(layers::rotary({.heads = 4, .frequencies = {.theta = 0}}), engine::ModelError);
  EXPECT_THROW(layers::rotary({.heads = 4, .frequencies = {.high_factor = 1}}), engine::ModelError);
  EXPECT_THROW(layers::causal_self_attention(1, 1.0), engine::ModelError);
}

TEST(Tied, TheStateListsTheParameterOnceAndItIsCompleteWithItsFirstUser) {
  const Graph graph = test_support::text_model(kPositions, [](Graph& g, NodeId tokens) {
    const NodeId x = embed(g, tokens);
    return g.add_tied("out", layers::dense(kVocabulary, false),
                      {g.add("ln", layers::layer_norm(), {x})}, x);
  });
  const engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  ASSERT_EQ(state.entries.size(), 3U);
  EXPECT_EQ(state.entries[0].name, "wte.weight");
  EXPECT_EQ(state.parameter_count(), kVocabulary * kWidth + 2 * kWidth);
  const engine::Plan plan = engine::Plan::compile(graph, {});
  // Steps: wte, ln, out, loss. After `out` nothing is final; after `ln` its own parameters are;
  // after `wte` all are.
  ASSERT_EQ(plan.steps.size(), 4U);
  EXPECT_EQ(plan.steps[2].gradients_complete, 0);
  EXPECT_GT(plan.steps[1].gradients_complete, 0);
  EXPECT_EQ(plan.steps[0].gradients_complete, state.parameters.gradients.size());
  EXPECT_FALSE(plan.steps[2].adds_to_parameters);
  EXPECT_TRUE(plan.steps[0].adds_to_parameters);
  EXPECT_FALSE(plan.steps[1].adds_to_parameters);
}

TEST(Tied, WhatDoesNotFitIsRefusedWithBothShapes) {
  Graph graph;
  const NodeId tokens = graph.input("tokens", {4}, engine::DType::kI32);
  const NodeId x = embed(graph, tokens);
  const auto error = [&](engine::LayerPtr layer, NodeId owner) -> std::string {
    return test_support::error_or<engine::ModelError>(
        [&] { graph.add_tied("out", std::move(layer), {x}, owner); }, "no error");
  };
  EXPECT_EQ(error(layers::dense(6, false), x),
            "layer 'out' (dense): tied to layer 'wte' (embedding), expected its parameters (weight "
            "[5, 8]), got weight [6, 8]");
  EXPECT_EQ(error(layers::dense(5), x),
            "layer 'out' (dense): tied to layer 'wte' (embedding), expected its parameters (weight "
            "[5, 8]), got weight [5, 8], "
            "bias [5]");
  EXPECT_VALUES(error(layers::dense(5, false), tokens), "'out' (dense): node 0, no parameters");
  EXPECT_VALUES(error(layers::dense(5, false), 99), "'out' (dense): node 99, no parameters");
  EXPECT_EQ(error(layers::dense(5, false), x), "no error");
}

TEST(Embedding, ATokenOutOfRangeIsRefused) {
  const Graph graph = test_support::text_model(
      4, [](Graph& g, NodeId tokens) { return text_head(g, embed(g, tokens)); });
  const engine::Plan plan = engine::Plan::compile(graph, {});
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  const std::vector<std::int32_t> tokens{0, 4, 5, 1}, labels(4, 0);
  const std::vector<std::int64_t> ids{0};
  EXPECT_THROW(
      executor.forward(
          {.count = 1, .samples = {}, .tokens = tokens, .labels = labels, .sample_ids = ids}, true),
      engine::InputError);
}

// Of sequences too the mask depends on (seed, epoch, sample) alone.
TEST(Dropout, OfSequencesDoesNotDependOnHowTheBatchIsSplit) {
  const auto run = [](std::int64_t first, std::int64_t count) {
    Graph graph = test_support::text_model(kPositions, [](Graph& g, NodeId tokens) {
      const NodeId qkv = g.add("qkv", layers::dense(24),
                               {g.add("drop", layers::dropout(0.5), {embed(g, tokens)})});
      return text_head(g, g.add("attn", layers::causal_self_attention(2, 0.5), {qkv}));
    });
    const NodeId logits = graph.logits();
    test_support::Harness harness(
        std::move(graph), {.max_batch = 8, .dtype = engine::DType::kF64, .watched = logits});
    const test_support::RandomBatch batch(harness.graph, 8);
    harness.executor.forward(batch.slice(first, count), true);
    return test_support::to_doubles(harness.executor.logits());
  };
  std::vector<double> parts = run(0, 3);
  for (const double value : run(3, 5)) parts.push_back(value);
  EXPECT_LT(test_support::difference(run(0, 8), parts), 1e-14);
}

}  // namespace
