// Translations from ONNX: which layers, names and parameters a graph becomes, and what is said of
// graphs that no list of layers can express. Other programs' files: tests/tools/commands/onnx.
#include "models/onnx_import/onnx_import.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/interchange/onnx_writer.h"
#include "models/model_catalog.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;

std::vector<float> values_of(const io::NamedArray& array) {
  std::vector<float> values(array.data.size() / sizeof(float));
  std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

// A convolution, a norm, a ReLU, a mean over the image, and a matrix with a bias.
io::OnnxModel small_net() {
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 3, 8, 8}}};
  model.outputs = {{.name = "y", .shape = {"batch", 5}}};
  model.nodes = {{"Conv", "/stem/Conv", {"x", "stem.weight"}, {"a"}, {{"pads", Ints{1, 1, 1, 1}}}},
                 {"BatchNormalization",
                  "/norm/BatchNormalization",
                  {"a", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"},
                  {"b"},
                  {{"epsilon", 1e-5F}, {"momentum", 0.9F}}},
                 {"Relu", "/relu/Relu", {"b"}, {"c"}, {}},
                 {"GlobalAveragePool", "/pool/GlobalAveragePool", {"c"}, {"d"}, {}},
                 {"Flatten", "/Flatten", {"d"}, {"e"}, {{"axis", std::int64_t{1}}}},
                 {"MatMul", "/fc/MatMul", {"e", "onnx::MatMul_7"}, {"f"}, {}},
                 {"Add", "/fc/Add", {"fc.bias", "f"}, {"y"}, {}}};
  model.constants = {floats("stem.weight", {4, 3, 3, 3}),
                     floats("norm.weight", {4}),
                     floats("norm.bias", {4}),
                     floats("norm.running_mean", {4}),
                     floats("norm.running_var", {4}),
                     floats("onnx::MatMul_7", {4, 5}),
                     floats("fc.bias", {5})};
  return model;
}

class OnnxImportTest : public testing::Test {
 protected:
  models::OnnxImport imported(const io::OnnxModel& model) {
    io::save_onnx(model, path_);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  std::string fault(const io::OnnxModel& model) {
    try {
      imported(model);
    } catch (const engine::ModelError& error) {
      return error.what();
    }
    return "";
  }
  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

TEST_F(OnnxImportTest, LayersHavePyTorchsNamesAndDefaults) {
  const models::OnnxImport found = imported(small_net());
  EXPECT_EQ(found.definition,
            "sample_shape = [8, 8, 3]\ninput_shape = [0, 0, 3]\nclasses = 5\nlogits = \"fc\"\n"
            "\n[[layer]]\nkind = \"conv2d\"\nname = \"stem\"\ninputs = [\"input\"]\n"
            "out_channels = 4\nkernel = 3\nstride = 1\npadding = 1\nbias = false\n"
            "\n[[layer]]\nkind = \"batch_norm2d\"\nname = \"norm\"\ninputs = [\"stem\"]\n"
            "eps = 1e-05\nmomentum = 0.1\n"
            "\n[[layer]]\nkind = \"relu\"\nname = \"relu\"\ninputs = [\"norm\"]\n"
            "\n[[layer]]\nkind = \"global_average_pool\"\nname = \"pool\"\ninputs = [\"relu\"]\n"
            "\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\ninputs = [\"pool\"]\n"
            "out = \"classes\"\nbias = true\n");
  EXPECT_EQ(found.heads, std::vector<std::string>{"fc"});
  std::vector<std::string> names;
  for (const io::NamedArray& array : found.arrays) names.push_back(array.name);
  EXPECT_EQ(names, (std::vector<std::string>{"stem.weight", "norm.weight", "norm.bias",
                                             "norm.running_mean", "norm.running_var", "fc.weight",
                                             "fc.bias"}));
  EXPECT_EQ(found.arrays[3].section, io::Section::kBuffer);
  // MatMul has inputs times outputs, a dense layer outputs times inputs.
  EXPECT_EQ(found.arrays[5].shape, (Ints{5, 4}));
  EXPECT_EQ(values_of(found.arrays[5]), (std::vector<float>{0,  5, 10, 15, 1,  6, 11, 16, 2, 7, 12,
                                                            17, 3, 8,  13, 18, 4, 9,  14, 19}));
  EXPECT_TRUE(found.notes.empty());
}

TEST_F(OnnxImportTest, OtherClassesReplaceTheLastLayer) {
  io::save_onnx(small_net(), path_);
  const engine::Graph graph = models::build_model(
      path_,
      {.sample_shape = {8, 8, 3}, .classes = 9, .definition = models::model_definition(path_)});
  EXPECT_EQ(graph.nodes()[static_cast<std::size_t>(graph.logits())].shape, (engine::Shape{9}));
  EXPECT_EQ(models::default_options(path_).sample_shape, (engine::Shape{8, 8, 3}));
  EXPECT_EQ(models::default_options(path_).classes, 5);
  EXPECT_EQ(models::model_weights(path_).heads, std::vector<std::string>{"fc"});
}

// view(x.size(0), -1), as PyTorch exports it.
TEST_F(OnnxImportTest, ShapesAreComputed) {
  io::OnnxModel model = small_net();
  model.nodes[4] = {"Reshape", "/Reshape", {"d", "shape"}, {"e"}, {}};
  const std::vector<io::OnnxNode> arithmetic{
      {"Shape", "/Shape", {"d"}, {"all"}, {}},
      {"Gather", "/Gather", {"all", "first"}, {"batch"}, {}},
      {"Unsqueeze", "/Unsqueeze", {"batch", "zero"}, {"batches"}, {}},
      {"Slice", "/Slice", {"all", "one", "two"}, {"channels"}, {}},
      {"Mul", "/Mul", {"channels", "one"}, {"rest"}, {}},
      {"Concat", "/Concat", {"batches", "rest"}, {"shape"}, {{"axis", std::int64_t{0}}}}};
  model.nodes.insert(model.nodes.begin() + 4, arithmetic.begin(), arithmetic.end());
  for (const auto& [name, value] : {std::pair("zero", 0), {"one", 1}, {"two", 2}})
    model.constants.push_back(integers(name, {value}));
  model.constants.push_back(integers("first", {0}));
  model.constants.back().shape = {};
  EXPECT_EQ(imported(model).definition, imported(small_net()).definition);
}

TEST_F(OnnxImportTest, UnneededNodesAreLeftOut) {
  io::OnnxModel model = small_net();
  model.nodes.push_back(
      {"Gemm", "/aux/Gemm", {"e", "aux.weight"}, {"unused"}, {{"transB", std::int64_t{1}}}});
  model.constants.push_back(floats("aux.weight", {2, 4}));
  const models::OnnxImport found = imported(model), plain = imported(small_net());
  EXPECT_EQ(found.definition, plain.definition);
  EXPECT_EQ(found.arrays.size(), plain.arrays.size());
}

// Nodes of one module: the layer with the parameters has its name.
TEST_F(OnnxImportTest, ParametersKeepTheNameOfTheirModule) {
  io::OnnxModel model = small_net();
  model.nodes[0].inputs[0] = "positive";
  model.nodes.insert(model.nodes.begin(), {"Relu", "/stem/Relu", {"x"}, {"positive"}, {}});
  const models::OnnxImport found = imported(model);
  EXPECT_EQ(found.arrays[0].name, "stem.weight");
  EXPECT_CONTAINS(found.definition, "kind = \"relu\"\nname = \"stem.relu\"");
}

TEST_F(OnnxImportTest, ASharedWeightIsTied) {
  io::OnnxModel model = small_net();
  model.nodes[6].outputs = {"g"};
  model.constants.push_back(floats("square.weight", {5, 5}));
  for (const auto& [from, to] : {std::pair("g", "h"), {"h", "y"}})
    model.nodes.push_back({"Gemm",
                           std::string("/") + to + "/Gemm",
                           {from, "square.weight"},
                           {to},
                           {{"transB", std::int64_t{1}}}});
  const models::OnnxImport found = imported(model);
  EXPECT_CONTAINS(found.definition, "tied = \"square\"");
  EXPECT_TRUE(found.heads.empty());
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_VALUES(found.notes[0], "5 classes");
}

TEST_F(OnnxImportTest, SoftmaxAtTheEndIsLeftOut) {
  io::OnnxModel model = small_net();
  model.nodes[6].outputs = {"z"};
  model.nodes.push_back({"Softmax", "/Softmax", {"z"}, {"y"}, {{"axis", std::int64_t{1}}}});
  const models::OnnxImport found = imported(model);
  EXPECT_EQ(found.definition, imported(small_net()).definition);
  EXPECT_LINES(found.notes, "Softmax end loss");
}

// A note for the training of classes, which would read probabilities as logits.
TEST_F(OnnxImportTest, ProbabilitiesWithALimitAreReported) {
  io::OnnxModel model = small_net();
  EXPECT_EQ(imported(model).probability_note, "");
  model.nodes[6].outputs = {"z"};
  model.nodes.push_back({"Softmax", "/Softmax", {"z"}, {"p"}, {{"axis", std::int64_t{1}}}});
  model.nodes.push_back({"Clip", "/Clip", {"p", "low", "high"}, {"y"}, {}});
  model.constants.push_back(scalar("low", 1e-7F));
  model.constants.push_back(scalar("high", 1));
  EXPECT_VALUES(imported(model).probability_note, "probabilities layer");
  model.nodes[7] = {"Sigmoid", "/Sigmoid", {"z"}, {"s"}, {}};
  model.nodes[8] = {"Mul", "/Mul", {"s", "low"}, {"p"}, {}};
  model.nodes.push_back({"Add", "/Add", {"p", "high"}, {"y"}, {}});
  EXPECT_VALUES(imported(model).probability_note, "probabilities layer");
  model.nodes[8] = {"Mul", "/Mul", {"s", "z"}, {"p"}, {}};
  EXPECT_EQ(imported(model).probability_note, "");
}

// Also of each position. The file says that it is left out: only the loss of classes contains it.
TEST_F(OnnxImportTest, SoftmaxOfEachPixelAtTheEndIsLeftOut) {
  for (const char* type : {"Softmax", "LogSoftmax"}) {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = {"batch", 3, 8, 8}}};
    model.outputs = {{.name = "y", .shape = {"batch", 5, 8, 8}}};
    model.nodes = {{"Conv", "/head/Conv", {"x", "head.weight"}, {"z"}, {}},
                   {type, "/Softmax", {"z"}, {"y"}, {{"axis", std::int64_t{1}}}}};
    model.constants = {floats("head.weight", {5, 3, 1, 1})};
    const models::OnnxImport found = imported(model);
    EXPECT_EQ(found.heads, std::vector<std::string>{"head"});
    EXPECT_TRUE(found.leaves_out_softmax);
    EXPECT_LINES(found.notes, std::string(type) + " end left out");
  }
}

TEST_F(OnnxImportTest, NormsThatAreFoldedAreTold) {
  io::OnnxModel model = small_net();
  model.nodes[0].inputs = {"x", "onnx::Conv_1", "onnx::Conv_2"};
  model.nodes[0].outputs = {"b"};
  model.nodes.erase(model.nodes.begin() + 1);
  model.constants[0].name = "onnx::Conv_1";
  model.constants.push_back(floats("onnx::Conv_2", {4}));
  const models::OnnxImport found = imported(model);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_CONTAINS(found.notes[0], "1 batch norms are folded");
  EXPECT_EQ(found.arrays[0].name, "stem.weight");  // after the node, as in PyTorch
  EXPECT_EQ(found.arrays[1].name, "stem.bias");
}

// With dynamo=True, the optimizer names its rule, whatever the layer and its bias.
TEST_F(OnnxImportTest, NormsThatAnOptimizerHasFoldedAreTold) {
  io::OnnxModel model = small_net();
  model.nodes.erase(model.nodes.begin(), model.nodes.begin() + 2);
  model.nodes[0].inputs[0] = "b";
  io::save_onnx(model, path_);
  base::ProtobufMessage rule, node, more;
  rule.text(1, io::kOnnxRule).text(2, "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv");
  node.text(1, "x").text(1, "stem.weight").text(2, "b").text(4, "Conv");
  node.message(9, std::move(rule));
  more.message(1, std::move(node));
  onnx_constants::add_to_graph(path_, more, /*before=*/true);
  const models::OnnxImport found =
      models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kSkip);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_VALUES(found.notes[0], "1 batch norms optimize=False");
}

// All that cannot be expressed is in one message; nodes that only depend on it are not.
TEST_F(OnnxImportTest, EveryNodeWithoutALayerIsNamed) {
  io::OnnxModel model = small_net();
  model.nodes[0].attributes.push_back({"group", std::int64_t{3}});
  model.nodes.push_back({"GridSample", "odd", {"x"}, {"o"}, {}});
  const std::string text = fault(model);
  EXPECT_VALUES(text, path_ + " 2 8 nodes");
  EXPECT_CONTAINS(text, "node '/stem/Conv' (Conv): group 3 with 4 outputs, expected ");
  EXPECT_CONTAINS(text, "node 'odd' (GridSample): no layer does this");
  EXPECT_CONTAINS(text, "docs/onnx-models.md");
  EXPECT_EQ(text.find("/norm"), std::string::npos) << text;
  model.nodes[0].name = "";
  EXPECT_CONTAINS(fault(model), "node 0 (Conv): group 3 with 4 outputs");
  // The operator is known, and something else is wrong.
  model.nodes.pop_back();
  EXPECT_EQ(fault(model).find("known operators"), std::string::npos) << fault(model);
}

// Lines of the list of layers are none of the file.
TEST_F(OnnxImportTest, AMessageNamesTheLayerAndNoLine) {
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 3, 8, 8}}};
  model.outputs = {{.name = "y", .shape = {"batch", 32}}};
  model.nodes = {
      {"Transpose", "/t", {"x"}, {"a"}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Reshape", "/r", {"a", "rows"}, {"b"}, {}},
      {"MatMul", "/fc/MatMul", {"b", "fc.weight"}, {"c"}, {}},
      {"ReduceMean", "/m", {"c"}, {"y"}, {{"axes", Ints{2}}, {"keepdims", std::int64_t{0}}}}};
  model.constants = {integers("rows", {0, 32, 6}), floats("fc.weight", {6, 5})};
  io::save_onnx(model, path_);
  const std::string message = test_support::error_or<engine::ShapeError>(
      [&] {
        models::build_model(path_, {.sample_shape = {8, 8, 3}, .classes = 6});
      },
      "no error");
  EXPECT_TRUE(message.starts_with(path_ + ": layer '")) << message;
}

// A graph with two values of one name has no meaning.
TEST_F(OnnxImportTest, ValuesHaveOneOrigin) {
  io::OnnxModel model = small_net();
  model.constants.push_back(model.constants[0]);
  EXPECT_CONTAINS(fault(model), "two values named '" + model.constants[0].name + "'");
  model = small_net();
  model.nodes[1].outputs = model.nodes[0].outputs;
  EXPECT_CONTAINS(fault(model), "two values named '" + model.nodes[0].outputs[0] + "'");
  model = small_net();
  model.nodes[0].outputs[0] = model.constants[0].name;
  EXPECT_CONTAINS(fault(model), "two values named '" + model.constants[0].name + "'");
}

// The part of the definition that follows `layer`, up to its next layer.
std::string options_of(const std::string& definition, const std::string& layer) {
  const std::size_t name = definition.find("\nname = \"" + layer + "\"\n");
  if (name == std::string::npos) return "no layer " + layer + " in " + definition;
  const std::size_t begin = definition.rfind("[[layer]]\n", name) + 10;
  const std::size_t end = definition.find("\n[[layer]]", begin);
  return definition.substr(begin, end == std::string::npos ? end : end - begin);
}

// small_net() with these nodes in place of its ReLU, from "b" to "c".
io::OnnxModel net_with(const std::vector<io::OnnxNode>& nodes) {
  io::OnnxModel model = small_net();
  model.nodes.erase(model.nodes.begin() + 2);
  model.nodes.insert(model.nodes.begin() + 2, nodes.begin(), nodes.end());
  model.constants.push_back(scalar("zero", 0));
  model.constants.push_back(scalar("six", 6));
  return model;
}

TEST_F(OnnxImportTest, AConvolutionOfGroupsBecomesOne) {
  io::OnnxModel model = net_with({{"Conv",
                                   "/depthwise/Conv",
                                   {"b", "depthwise.weight"},
                                   {"d1"},
                                   {{"group", std::int64_t{4}}, {"pads", Ints{1, 1, 1, 1}}}},
                                  {"Conv",
                                   "/pairs/Conv",
                                   {"d1", "pairs.weight", "pairs.bias"},
                                   {"c"},
                                   {{"group", std::int64_t{2}}}}});
  model.constants.push_back(floats("depthwise.weight", {4, 1, 3, 3}));
  model.constants.push_back(floats("pairs.weight", {4, 2, 1, 1}));
  model.constants.push_back(floats("pairs.bias", {4}));
  const models::OnnxImport found = imported(model);
  EXPECT_EQ(options_of(found.definition, "depthwise"),
            "kind = \"conv2d\"\nname = \"depthwise\"\ninputs = [\"norm\"]\nout_channels = 4\n"
            "kernel = 3\nstride = 1\npadding = 1\nbias = false\ngroups = 4\n");
  EXPECT_CONTAINS(options_of(found.definition, "pairs"), "bias = true\ngroups = 2\n");
  model.nodes[2].attributes[0] = {"group", std::int64_t{2}};
  EXPECT_VALUES(fault(model), "weight [4, 1, 3, 3] 2 groups: channels");
}

TEST_F(OnnxImportTest, ActivationsHavePyTorchsNames) {
  const auto kind_of = [&](const io::OnnxNode& node) {
    return options_of(imported(net_with({node})).definition, "act");
  };
  const auto text = [](const std::string& rest) {
    return "kind = \"activation\"\nname = \"act\"\ninputs = [\"norm\"]\nfunction = " + rest;
  };
  EXPECT_EQ(kind_of({"Clip", "/act/Clip", {"b", "zero", "six"}, {"c"}, {}}), text("\"relu6\"\n"));
  EXPECT_CONTAINS(kind_of({"Clip", "/act/Clip", {"b", "zero"}, {"c"}, {}}), "kind = \"relu\"");
  EXPECT_EQ(kind_of({"Clip", "/act/Clip", {"b", "", "six"}, {"c"}, {}}),
            text("\"clip\"\nhigh = 6\n"));
  EXPECT_EQ(kind_of({"Sigmoid", "/act/Sigmoid", {"b"}, {"c"}, {}}), text("\"sigmoid\"\n"));
  EXPECT_EQ(kind_of({"HardSigmoid", "/act/HardSigmoid", {"b"}, {"c"}, {{"alpha", 1.0F / 6}}}),
            text("\"hard_sigmoid\"\n"));
  EXPECT_EQ(kind_of({"HardSwish", "/act/HardSwish", {"b"}, {"c"}, {}}), text("\"hard_swish\"\n"));
  EXPECT_EQ(kind_of({"LeakyRelu", "/act/LeakyRelu", {"b"}, {"c"}, {{"alpha", 0.2F}}}),
            text("\"leaky_relu\"\nslope = 0.2\n"));
  EXPECT_EQ(kind_of({"Tanh", "/act/Tanh", {"b"}, {"c"}, {}}), text("\"tanh\"\n"));
  EXPECT_CONTAINS(imported(net_with({{"HardSigmoid", "h", {"b"}, {"c"}, {}}})).definition,
                  "scale = 0.2\nshift = 0.5\n");
  EXPECT_CONTAINS(imported(net_with({{"Elu", "e", {"b"}, {"c"}, {{"alpha", 0.5F}}}})).definition,
                  "function = \"elu\"\n");
  EXPECT_CONTAINS(imported(net_with({{"Selu", "e", {"b"}, {"c"}, {}}})).definition,
                  "scale = 1.6732632423543772\n");
  EXPECT_CONTAINS(fault(net_with({{"Celu", "e", {"b"}, {"c"}, {{"alpha", 0.0F}}}})), "alpha 0");
  const std::string limits =
      imported(net_with({{"Clip", "k", {"b", "six", "six"}, {"c"}, {}}})).definition;
  EXPECT_CONTAINS(limits, "function = \"clip\"\nlow = 6\n");
  EXPECT_CONTAINS(limits, "function = \"clip\"\nhigh = 6\n");
  EXPECT_CONTAINS(fault(net_with({{"LeakyRelu", "l", {"b"}, {"c"}, {{"alpha", -1.0F}}}})),
                  "alpha -1, expected 0 or more");
}

// model(x).squeeze(-1), as a regression has it.
TEST_F(OnnxImportTest, ANumberForEachSampleIsAVectorOfOne) {
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 3}}};
  model.outputs = {{.name = "y", .shape = {"batch"}}};
  model.nodes = {{"Gemm", "/fc/Gemm", {"x", "fc.weight"}, {"z"}, {{"transB", std::int64_t{1}}}},
                 {"Squeeze", "/Squeeze", {"z", "last"}, {"y"}, {}}};
  model.constants = {floats("fc.weight", {1, 3}), integers("last", {-1})};
  const models::OnnxImport found = imported(model);
  EXPECT_CONTAINS(found.definition, "classes = 1\nlogits = \"fc\"\n");
  EXPECT_EQ(found.heads, std::vector<std::string>{"fc"});
}

TEST_F(OnnxImportTest, RowsAsTheInputAreNamedWithAnImageInTheirPlace) {
  io::OnnxModel model = small_net();
  model.inputs = {{.name = "x", .shape = {"batch", 3, 8}}};
  EXPECT_VALUES(fault(model), "[?, 3, 8] [batch, channels, 1, length]");
}

// x * sigmoid(x), in both orders. A sigmoid that something else reads remains.
TEST_F(OnnxImportTest, AProductWithItsOwnSigmoidIsSilu) {
  const io::OnnxNode sigmoid{"Sigmoid", "/act/Sigmoid", {"b"}, {"s"}, {}};
  const std::string plain =
      imported(net_with({sigmoid, {"Mul", "/out/Mul", {"b", "s"}, {"c"}, {}}})).definition;
  EXPECT_CONTAINS(options_of(plain, "out"), "inputs = [\"norm\"]\nfunction = \"silu\"\n");
  EXPECT_EQ(plain.find("\"sigmoid\""), std::string::npos) << plain;
  EXPECT_EQ(imported(net_with({sigmoid, {"Mul", "/out/Mul", {"s", "b"}, {"c"}, {}}})).definition,
            plain);
  const std::string both = imported(net_with({sigmoid,
                                              {"Mul", "/out/Mul", {"b", "s"}, {"m"}, {}},
                                              {"Add", "/Add", {"m", "s"}, {"c"}, {}}}))
                               .definition;
  EXPECT_CONTAINS(options_of(both, "out"), "function = \"silu\"");
  EXPECT_CONTAINS(options_of(both, "act"), "function = \"sigmoid\"");
  const io::OnnxNode hard{"HardSigmoid", "/act/HardSigmoid", {"b"}, {"s"}, {{"alpha", 1.0F / 6}}};
  EXPECT_CONTAINS(imported(net_with({hard, {"Mul", "/out/Mul", {"b", "s"}, {"c"}, {}}})).definition,
                  "function = \"hard_swish\"");
}

// Squeeze and excitation: the mean of each channel, two convolutions of it, and a product.
TEST_F(OnnxImportTest, MeansOfChannelsScaleThem) {
  const std::vector<io::OnnxNode> nodes{
      {"ReduceMean", "/se/avgpool/ReduceMean", {"b"}, {"m"}, {{"axes", Ints{2, 3}}}},
      {"Conv", "/se/fc1/Conv", {"m", "se.fc1.weight", "se.fc1.bias"}, {"h"}, {}},
      {"Relu", "/se/Relu", {"h"}, {"r"}, {}},
      {"Conv", "/se/fc2/Conv", {"r", "se.fc2.weight", "se.fc2.bias"}, {"z"}, {}},
      {"Sigmoid", "/se/scale/Sigmoid", {"z"}, {"s"}, {}},
      {"Mul", "/se/Mul", {"s", "b"}, {"c"}, {}}};
  io::OnnxModel model = net_with(nodes);
  for (const auto& [name, shape] : {std::pair<const char*, Ints>{"se.fc1.weight", {2, 4, 1, 1}},
                                    {"se.fc1.bias", {2}},
                                    {"se.fc2.weight", {4, 2, 1, 1}},
                                    {"se.fc2.bias", {4}}})
    model.constants.push_back(floats(name, shape));
  const std::string definition = imported(model).definition;
  EXPECT_EQ(options_of(definition, "se.fc1"),
            "kind = \"dense\"\nname = \"se.fc1\"\ninputs = [\"se.avgpool\"]\nout = 2\nbias = "
            "true\n");
  EXPECT_CONTAINS(definition,
                  "kind = \"multiply\"\nname = \"se_2\"\ninputs = [\"norm\", \"se.scale\"]\n");
  model.nodes[7].inputs[1] = "x";
  EXPECT_CONTAINS(fault(model), "[batch, 4, 1, 1] and [batch, 3, 8, 8], expected one shape");
}

TEST_F(OnnxImportTest, ConvolutionsOfAnyWindow) {
  io::OnnxModel model = small_net();
  std::erase_if(model.nodes[0].attributes, [](const io::OnnxAttribute& old) {
    return old.name == "pads" || old.name == "strides";
  });
  for (const io::OnnxAttribute& each :
       {io::OnnxAttribute{"pads", Ints{1, 2, 3, 2}}, io::OnnxAttribute{"strides", Ints{2, 1}},
        io::OnnxAttribute{"dilations", Ints{1, 2}}})
    model.nodes[0].attributes.push_back(each);
  EXPECT_CONTAINS(imported(model).definition,
                  "kernel = 3\nstride = [2, 1]\npadding = [1, 2, 3, 2]\nbias = false\ndilation = "
                  "[1, 2]\n");
}

TEST_F(OnnxImportTest, TransposedConvolutions) {
  const auto with = [&](const Ints& output_padding, std::int64_t group) {
    io::OnnxModel model = net_with(
        {{"ConvTranspose",
          "/up/ConvTranspose",
          {"b", "up.weight"},
          {"c"},
          {{"strides", Ints{2, 2}}, {"output_padding", output_padding}, {"group", group}}}});
    model.constants.push_back(floats("up.weight", {4, 2, 3, 1}));
    return model;
  };
  EXPECT_CONTAINS(imported(with({1, 0}, 2)).definition,
                  "kind = \"conv_transpose\"\nname = \"up\"\ninputs = [\"norm\"]\nout_channels = "
                  "4\nkernel = [3, 1]\nstride = 2\npadding = 0\nbias = false\ngroups = "
                  "2\noutput_padding = [1, 0]\n");
  EXPECT_VALUES(fault(with({0, 0}, 3)), "(ConvTranspose): 3 groups equal");
  EXPECT_CONTAINS(fault(with({-1, 0}, 1)), "output_padding [-1, 0], expected 2 numbers from 0");
}

// The rest of an odd number of pads is at the end for SAME_UPPER, else at the start.
TEST_F(OnnxImportTest, PadsFollowFromShapes) {
  const auto with = [&](const char* type, const Ints& weight, const io::OnnxAttribute& shape) {
    io::OnnxModel model =
        net_with({{type, "/up", {"b", "up.weight"}, {"c"}, {{"strides", Ints{2, 2}}, shape}}});
    model.constants.push_back(floats("up.weight", weight));
    return model;
  };
  const auto padding = [&](const char* type, const char* auto_pad) {
    const std::string found =
        imported(with(type, {4, 4, 3, 2}, {"auto_pad", std::string(auto_pad)})).definition;
    const std::size_t at = found.find("padding = ", found.find("\"up\""));
    return found.substr(at, found.find('\n', at) - at);
  };
  EXPECT_EQ(padding("Conv", "SAME_UPPER"), "padding = [0, 0, 1, 0]");
  EXPECT_EQ(padding("Conv", "SAME_LOWER"), "padding = [1, 0, 0, 0]");
  EXPECT_EQ(padding("ConvTranspose", "SAME_UPPER"), "padding = [0, 0, 1, 0]");
  EXPECT_EQ(padding("ConvTranspose", "SAME_LOWER"), "padding = [1, 0, 0, 0]");
  EXPECT_EQ(padding("Conv", "VALID"), "padding = 0");
  EXPECT_CONTAINS(fault(with("Conv", {4, 4, 3, 2}, {"auto_pad", std::string("SAME")})),
                  "auto_pad 'SAME', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID");
  EXPECT_CONTAINS(fault(with("ConvTranspose", {4, 4, 3, 2}, {"output_shape", Ints{17}})),
                  "output_shape [17], expected 2 numbers from 1");
}

// A small file must not need much memory or time.
TEST_F(OnnxImportTest, ConstantsAndLayersHaveLimits) {
  io::OnnxModel model = small_net();
  model.constants.push_back(integers("shape", {1 << 11, 1 << 10}));
  model.nodes.push_back({"ConstantOfShape", "many", {"shape"}, {"zeros"}, {}});
  EXPECT_VALUES(fault(model), "node 'many' (ConstantOfShape): [2048, 1024], 1048576 elements");
  model.constants.back() = integers("shape", {1 << 10, 1 << 10});
  for (int i = 0; i < 32; ++i)
    model.nodes.push_back(
        {"ConstantOfShape", "again", {"shape"}, {"zeros" + std::to_string(i)}, {}});
  EXPECT_VALUES(fault(model), "1 40 nodes node 'again' 33554432 elements");
  model = small_net();
  model.constants.push_back(integers("list", Ints(65, 1)));
  model.nodes.push_back({"Reshape", "far", {"x", "list"}, {"some"}, {}});
  EXPECT_VALUES(fault(model), "'far' (Reshape): list 64 integers");
  model = small_net();
  for (int i = 0; i < 10'000; ++i) {
    const std::string before = i == 0 ? "c" : "r" + std::to_string(i - 1);
    model.nodes.push_back({"Relu", "/same/Relu", {before}, {"r" + std::to_string(i)}, {}});
  }
  EXPECT_CONTAINS(fault(model), "more than 10000 layers");
}

TEST_F(OnnxImportTest, WhatIsMissingIsNamed) {
  const auto of = [&](std::size_t node, const io::OnnxAttribute& attribute) {
    io::OnnxModel model = small_net();
    std::erase_if(model.nodes[node].attributes,
                  [&](const io::OnnxAttribute& old) { return old.name == attribute.name; });
    model.nodes[node].attributes.push_back(attribute);
    return fault(model);
  };
  EXPECT_CONTAINS(of(0, {"dilations", Ints{2, 0}}), "dilations [2, 0], expected 2 numbers from 1");
  EXPECT_CONTAINS(of(0, {"strides", Ints{2}}), "strides [2], expected 2 numbers from 1");
  EXPECT_CONTAINS(of(0, {"pads", Ints{0, 0, 1, -1}}), "expected 4 numbers from 0");
  EXPECT_VALUES(of(0, {"dilations", Ints{9, 9}}), "window 19 image 8");
  EXPECT_CONTAINS(of(0, {"kernel_shape", Ints{3, 1}}), "expected equal ones");
  EXPECT_CONTAINS(of(4, {"axis", std::int64_t{5}}), "axis 5 of 4 dimensions");
  io::OnnxModel model = small_net();
  model.outputs.push_back(model.outputs[0]);
  EXPECT_CONTAINS(fault(model), "its graph has 2 outputs, expected 1: the logits");
  model = small_net();
  model.inputs[0].type = io::DType::kI64;
  EXPECT_VALUES(fault(model), "[?, 3, 8, 8] [batch, length]");
  model.inputs[0].type = io::DType::kU8;
  EXPECT_VALUES(fault(model), "floats int64 int32");
  model = small_net();
  model.outputs[0].name = "c";
  EXPECT_EQ(fault(model), "") << "logits of 4 classes for each of 8 x 8 pixels";
}

}  // namespace
