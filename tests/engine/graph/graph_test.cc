// Graph and ModelState: what is refused, names and orders.
#include "engine/graph/graph.h"

#include <gtest/gtest.h>

#include "engine/graph/plan.h"
#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using engine::Graph;
using engine::ModelState;
using engine::NodeId;
using test_support::error_of;
namespace layers = engine::layers;

TEST(Graph, RefusesANameUsedTwice) {
  Graph graph;
  const NodeId x = graph.input("x", {4});
  graph.add("fc", layers::dense(2), {x});
  EXPECT_VALUES(error_of<engine::ModelError>([&] { graph.add("fc", layers::dense(2), {x}); }),
                "'fc' (dense): name twice");
  EXPECT_NO_THROW(graph.add("", layers::relu(), {x}));
  EXPECT_NO_THROW(graph.add("", layers::relu(), {x}));
}

TEST(Graph, RefusesAnUnnamedLayerWithParameters) {
  Graph graph;
  const NodeId x = graph.input("x", {4});
  EXPECT_VALUES(error_of<engine::ModelError>([&] { graph.add("", layers::dense(2), {x}); }),
                "#1 (dense): parameters name");
}

TEST(Graph, RefusesInputsThatAreNotThereOrOfTheWrongType) {
  Graph graph;
  const NodeId x = graph.input("x", {4}), labels = graph.input("labels", {}, engine::DType::kI32);
  EXPECT_VALUES(error_of<engine::ModelError>([&] { graph.add("fc", layers::dense(2), {7}); }),
                "'fc' (dense): input 0 node 7, 2 nodes");
  EXPECT_VALUES(error_of<engine::ModelError>([&] { graph.add("", layers::relu(), {labels}); }),
                "#2 (relu): f32 input 0, i32 'labels'");
  EXPECT_VALUES(error_of<engine::ModelError>([&] {
                  graph.add("loss", layers::softmax_cross_entropy(), {x, x});
                }),
                "'loss' (softmax_cross_entropy): i32 input 1, f32 'x'");
  EXPECT_THROW(graph.set_outputs(x, x), engine::ModelError);
}

TEST(Graph, CountsTheOperationsOfProducts) {
  Graph graph;
  const NodeId x = graph.input("x", {5, 12}), y = graph.input("y", {5, 12});
  const auto flops = [&](engine::LayerPtr layer, const std::vector<NodeId>& inputs) {
    const std::string name = "n" + std::to_string(graph.nodes().size());
    return engine::forward_flops(graph, graph.add(name, std::move(layer), inputs));
  };
  EXPECT_EQ(flops(layers::dense(3), {x}), 2 * 5 * 12 * 3);
  EXPECT_EQ(flops(layers::matmul({.transpose_second = true}), {x, y}), 2 * 5 * 5 * 12);
  // 2 heads of 2: scores of 5 x 5, which a causal mask halves, and their product with the values.
  EXPECT_EQ(flops(layers::self_attention({.heads = 2}), {x}), 2 * (2 * 5 * 5 * 4));
  EXPECT_EQ(flops(layers::causal_self_attention(2), {x}), 2 * 5 * 5 * 4);
  EXPECT_EQ(flops(layers::softmax(), {x}), 0);
}

TEST(Plan, RefusesALayerThatNothingReads) {
  Graph graph = test_support::classifier({4}, [](Graph& g, NodeId x) {
    g.add("spare", layers::dense(3), {x});
    return g.add("fc", layers::dense(2), {x});
  });
  EXPECT_VALUES(error_of<engine::ModelError>([&] { engine::Plan::compile(graph, {}); }),
                "'spare' (dense) neither logits nor loss");
  EXPECT_THROW(engine::Plan::compile(Graph(), {}), engine::ModelError);
}

TEST(ModelState, DrawsWhatIsWantedAlone) {
  const Graph graph = test_support::classifier(
      {4}, [](Graph& g, NodeId x) { return g.add("fc", layers::dense(2), {x}); });
  ModelState all = ModelState::allocate(graph, engine::DType::kF32),
             some = ModelState::allocate(graph, engine::DType::kF32);
  all.initialize(graph, 1);
  some.initialize(graph, 1, [](const std::string& name) { return name == "fc.weight"; });
  for (std::size_t i = 0; i < all.entries.size(); ++i) {
    const float drawn = *all.view(all.entries[i]).as<float>(),
                kept = *some.view(some.entries[i]).as<float>();
    EXPECT_NE(drawn, 0) << all.entries[i].name;
    EXPECT_EQ(kept, all.entries[i].name == "fc.weight" ? drawn : 0) << all.entries[i].name;
  }
  some.initialize(graph, 1, ModelState::nothing);
  EXPECT_NE(*some.view(some.entries[0]).as<float>(), 0);
}

TEST(ModelState, ListsNamesInModelOrderAndParametersInCompletionOrder) {
  const Graph graph = test_support::classifier({4, 4, 1}, [](Graph& g, NodeId x) {
    const NodeId n = g.add("a.1", layers::batch_norm2d(),
                           {g.add("a.0", layers::conv2d({.out_channels = 2}), {x})});
    return g.add("fc", layers::dense(3, false), {g.add("", layers::flatten(), {n})});
  });
  const ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  std::vector<std::string> names, completion;
  for (const ModelState::Entry& entry : state.entries) names.push_back(entry.name);
  for (const auto& slot : state.parameters.values.slots()) completion.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.0.weight", "a.0.bias", "a.1.weight", "a.1.bias",
                                             "a.1.running_mean", "a.1.running_var",
                                             "a.1.num_batches_tracked", "fc.weight"}));
  EXPECT_EQ(completion, (std::vector<std::string>{"fc.weight", "a.1.weight", "a.1.bias",
                                                  "a.0.weight", "a.0.bias"}));
  EXPECT_EQ(state.parameter_count(), 2 * 9 + 2 + 2 + 2 + 3 * 8);
  EXPECT_EQ(state.view(state.entries[6]).dtype, engine::DType::kI64);
  EXPECT_EQ(state.layout(state.entries[6]).file_shape, engine::Shape());
}

}  // namespace
