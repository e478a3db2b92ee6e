// Layers that share parameters although they compute differently, and running statistics.
#include <gtest/gtest.h>

#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"

namespace {

namespace layers = engine::layers;
using engine::Graph, engine::NodeId;

std::vector<std::string> entry_names(const engine::ModelState& state) {
  std::vector<std::string> names;
  for (const engine::ModelState::Entry& entry : state.entries) names.push_back(entry.name);
  return names;
}

// As PyTorch's module that is called twice in one step.
TEST(TiedLayers, NormsShareTheirRunningStatisticsAndEachUpdatesThem) {
  const auto model = [](bool is_tied) {
    return test_support::classifier({4, 4, 2}, [is_tied](Graph& g, NodeId x) {
      const NodeId a = g.add("a", layers::batch_norm2d(), {x});
      const NodeId b = is_tied ? g.add_tied("b", layers::batch_norm2d(), {a}, a)
                               : g.add("b", layers::batch_norm2d(), {a});
      return g.add("fc", layers::dense(3), {g.add("flat", layers::flatten(), {b})});
    });
  };
  test_support::Harness tied(model(true), {.max_batch = 5}), apart(model(false), {.max_batch = 5});
  EXPECT_EQ(entry_names(tied.state),
            (std::vector<std::string>{"a.weight", "a.bias", "a.running_mean", "a.running_var",
                                      "a.num_batches_tracked", "fc.weight", "fc.bias"}));
  const test_support::RandomBatch batch(tied.graph, 5);
  test_support::gradients(tied, batch.view());
  test_support::gradients(apart, batch.view());
  // A second update with the statistics that norm b of the other network has seen: 0.1 of them and
  // 0.9 of those before, which were 0 and 1 there.
  const auto values = [](const test_support::Harness& h, std::size_t entry) {
    return test_support::to_doubles(h.state.view(h.state.entries[entry]));
  };
  for (const auto& [entry, initial] : {std::pair<std::size_t, double>{2, 0}, {3, 1}}) {
    std::vector<double> expected = values(apart, entry);
    const std::vector<double> second = values(apart, entry + 5);
    for (std::size_t c = 0; c < expected.size(); ++c)
      expected[c] = 0.9 * expected[c] + (second[c] - 0.9 * initial);
    EXPECT_LT(test_support::difference(values(tied, entry), expected), 1e-6) << entry;
  }
  EXPECT_EQ(*tied.state.view(tied.state.entries[4]).as<std::int64_t>(), 2);
}

TEST(TiedLayers, NormsWithoutParametersShareTheirRunningStatistics) {
  test_support::Harness tied(
      test_support::classifier(
          {4, 4, 2},
          [](Graph& g, NodeId x) {
            const NodeId a = g.add("a", layers::batch_norm2d({.affine = false}), {x});
            const NodeId b = g.add_tied("b", layers::batch_norm2d({.affine = false}), {a}, a);
            return g.add("fc", layers::dense(3), {g.add("flat", layers::flatten(), {b})});
          }),
      {.max_batch = 5});
  EXPECT_EQ(entry_names(tied.state),
            (std::vector<std::string>{"a.running_mean", "a.running_var", "a.num_batches_tracked",
                                      "fc.weight", "fc.bias"}));
}

// Convolutions with and without dilation, each as the owner of the weights.
TEST(TiedLayers, ConvolutionsOfOtherWindowsShareTheirWeights) {
  const auto conv = [](std::int64_t dilation, std::int64_t stride) {
    return layers::conv2d(
        {.out_channels = 2, .stride = stride, .padding = dilation, .dilation = dilation});
  };
  for (const bool is_dilated_first : {true, false})
    EXPECT_LT(
        test_support::gradient_error(
            test_support::classifier(
                {6, 6, 2},
                [&](Graph& g, NodeId x) {
                  const NodeId a = g.add("a", conv(is_dilated_first ? 2 : 1, 1), {x});
                  const NodeId b = g.add_tied("b", conv(1, 1), {g.add("", layers::relu(), {a})}, a);
                  const NodeId c = g.add_tied("c", conv(2, 1), {b}, a);
                  const NodeId d = g.add_tied("d", conv(1, 2), {c}, a);
                  return g.add("fc", layers::dense(3), {g.add("flat", layers::flatten(), {d})});
                }),
            3),
        1e-6)
        << is_dilated_first;
}

}  // namespace
