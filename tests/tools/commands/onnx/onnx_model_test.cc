// Graphs of ONNX without a runtime: what is in them and what is left out, and layers that have no
// operators.
#include "models/onnx_export/onnx_export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/layers/layers.h"
#include "engine/train/saving/weights.h"
#include "models/model_catalog.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"

namespace {

namespace layers = engine::layers;
using engine::Graph;
using models::onnx_model;

// The names of nodes' types, in order.
std::vector<std::string> types_of(const io::OnnxModel& model) {
  std::vector<std::string> types;
  for (const io::OnnxNode& node : model.nodes) types.push_back(node.type);
  return types;
}

std::set<std::string> constants_of(const io::OnnxModel& model) {
  std::set<std::string> names;
  for (const io::NamedArray& array : model.constants) names.insert(array.name);
  EXPECT_EQ(names.size(), model.constants.size());
  return names;
}

// Each value is made once, before it is read.
void expect_in_order(const io::OnnxModel& model) {
  std::set<std::string> known = constants_of(model);
  for (const io::OnnxValue& input : model.inputs) EXPECT_TRUE(known.insert(input.name).second);
  for (const io::OnnxNode& node : model.nodes) {
    for (const std::string& input : node.inputs) EXPECT_TRUE(known.contains(input)) << input;
    for (const std::string& output : node.outputs) EXPECT_TRUE(known.insert(output).second);
  }
  for (const io::OnnxValue& output : model.outputs)
    EXPECT_TRUE(known.contains(output.name)) << output.name;
}

io::OnnxModel exported(const Graph& graph,
                       const std::optional<models::PixelScaling>& pixels = std::nullopt) {
  const engine::ModelState state = onnx_fixture::random_state(graph);
  io::OnnxModel model = onnx_model(graph, engine::export_state(state, {}), pixels);
  expect_in_order(model);
  return model;
}

TEST(OnnxModel, ConvnetIsWhatItsLayersAre) {
  const io::OnnxModel model =
      exported(models::build_model("convnet", {.sample_shape = {28, 20, 3}, .classes = 10}));
  const std::vector<std::string> block{"Conv", "BatchNormalization", "Relu", "MaxPool"};
  std::vector<std::string> expected = block;
  expected.insert(expected.end(), block.begin(), block.end());
  expected.insert(expected.end(), {"Flatten", "Gemm"});
  EXPECT_EQ(types_of(model), expected);
  EXPECT_EQ(model.inputs[0].shape, (std::vector<io::OnnxDimension>{"batch", 3, 28, 20}));
  EXPECT_EQ(model.outputs[0].shape, (std::vector<io::OnnxDimension>{"batch", 10}));
  EXPECT_EQ(model.nodes.back().outputs, std::vector<std::string>{"logits"});
  // PyTorch's names and layouts; counters of batches are of no use.
  const std::set<std::string> names = constants_of(model);
  EXPECT_TRUE(names.contains("layer1.1.running_var"));
  EXPECT_FALSE(names.contains("layer1.1.num_batches_tracked"));
  const auto first = std::ranges::find(model.constants, "layer1.0.weight", &io::NamedArray::name);
  EXPECT_EQ(first->shape, (std::vector<std::int64_t>{16, 3, 5, 5}));
}

TEST(OnnxModel, TiedWeightsAreStoredOnce) {
  const io::OnnxModel model = exported(
      models::build_model("gpt-nano", {.sample_shape = {16}, .classes = 20, .dropout = 0.1}));
  const std::set<std::string> names = constants_of(model);
  EXPECT_TRUE(names.contains("transformer.wte.weight"));
  EXPECT_FALSE(names.contains("lm_head.weight"));
  EXPECT_EQ(model.inputs[0].type, io::DType::kI64);
  EXPECT_EQ(model.inputs[0].shape, (std::vector<io::OnnxDimension>{"batch", "positions"}));
  EXPECT_EQ(model.outputs[0].shape, (std::vector<io::OnnxDimension>{"batch", "positions", 20}));
  const std::vector<std::string> types = types_of(model);
  EXPECT_EQ(std::ranges::count(types, "Dropout"), 0);
  EXPECT_EQ(std::ranges::count(types, "LessOrEqual"), 1);  // one mask for all layers
  // Matrices of sequences lie as MatMul reads them.
  const auto matrix = std::ranges::find(model.constants, "transformer.h.0.attn.c_attn.weight",
                                        &io::NamedArray::name);
  EXPECT_EQ(matrix->shape, (std::vector<std::int64_t>{128, 384}));
}

TEST(OnnxModel, PixelsAreScaledFirst) {
  const Graph graph = models::build_model("convnet", {.sample_shape = {8, 8, 3}, .classes = 4});
  const std::vector<std::string> unit = types_of(exported(graph, models::PixelScaling{}));
  EXPECT_EQ(unit[0], "Div");
  EXPECT_EQ(unit[1], "Conv");
  const std::vector<std::string> standard =
      types_of(exported(graph, models::PixelScaling{.mean = {1, 2, 3}, .deviation = {1, 2, 3}}));
  EXPECT_EQ(std::vector<std::string>(standard.begin(), standard.begin() + 4),
            (std::vector<std::string>{"Div", "Sub", "Div", "Conv"}));
  EXPECT_THROW(exported(graph, models::PixelScaling{.mean = {1}, .deviation = {1}}),
               engine::ModelError);
  EXPECT_THROW(exported(models::build_model("mlp", {.sample_shape = {1, 1, 5}, .classes = 4}),
                        models::PixelScaling{}),
               engine::ModelError);
}

class Fourier final : public engine::Layer {
 public:
  Fourier() : Layer({.kind = "fourier"}) {}
  engine::Shape output_shape(std::span<const engine::Shape> inputs) const override {
    return inputs[0];
  }
  void forward(const engine::LayerRun&) const override {}
  void backward(const engine::LayerRun&) const override {}
};

Graph graph_with_fourier(bool before_logits) {
  Graph graph;
  const engine::NodeId input = graph.input("input", {4, 4, 1}),
                       labels = graph.input("labels", {}, engine::DType::kI32),
                       flat = graph.add("", layers::flatten(), {input}),
                       first = graph.add("fc", layers::dense(3), {flat}),
                       waves = graph.add("waves", std::make_unique<Fourier>(), {first});
  const engine::NodeId logits = before_logits ? waves : first;
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(), {waves, labels}));
  return graph;
}

TEST(OnnxModel, NamesTheLayerThatOnnxHasNoOperatorsFor) {
  EXPECT_VALUES(
      test_support::error_of<engine::ModelError>([] { exported(graph_with_fourier(true)); }),
      "'waves' (fourier): ONNX; .safetensors .npz");
}

// What only the loss reads does not matter.
TEST(OnnxModel, EndsAtTheLogits) {
  EXPECT_EQ(types_of(exported(graph_with_fourier(false))),
            (std::vector<std::string>{"Flatten", "Gemm"}));
}

// Logits that are the input itself, as far as inference goes, and names that ONNX's own could meet.
TEST(OnnxModel, NamesDoNotCollide) {
  Graph graph;
  const engine::NodeId input = graph.input("input", {4}),
                       drop = graph.add("", layers::dropout(), {input});
  graph.set_outputs(drop, drop);
  const io::OnnxModel alias = exported(graph);
  EXPECT_EQ(types_of(alias), std::vector<std::string>{"Identity"});
  Graph named;
  const engine::NodeId from = named.input("input", {4}),
                       one = named.add("constant", layers::dense(4), {from}),
                       two = named.add("constant/Gemm", layers::dense(4), {one}),
                       three = named.add("logits", layers::relu(), {two}),
                       four = named.add("", layers::relu(), {three});
  named.set_outputs(four, four);
  EXPECT_EQ(exported(named).nodes.size(), 4U);
}

}  // namespace
