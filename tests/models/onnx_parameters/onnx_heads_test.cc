// Networks from ONNX for data with another number of classes: which layers are replaced.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/interchange/onnx_writer.h"
#include "models/model_catalog.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::Ints;
using Names = std::vector<std::string>;

// The nodes after a convolution of 4 channels on 6 x 8 pixels, "z", or the mean of each, "m".
struct HeadNodes {
  std::vector<io::OnnxNode> nodes;  // the last output is "y"
  std::vector<io::NamedArray> constants;
};

io::OnnxNode head_node(const std::string& type, const Names& inputs, const std::string& output,
                       const std::vector<io::OnnxAttribute>& attributes = {}) {
  return {type, "/" + output + "/" + type, inputs, {output}, attributes};
}

io::OnnxNode reduced_head(const std::string& type, const std::string& from, const std::string& to,
                          const Ints& axes) {
  return head_node(type, {from}, to, {{"axes", axes}, {"keepdims", std::int64_t{0}}});
}

// The number 0 as a constant without dimensions.
io::NamedArray first_index() {
  io::NamedArray index = onnx_constants::integers("first", {0});
  index.shape.clear();
  return index;
}

class OnnxHeadsTest : public testing::Test {
 protected:
  void save(const HeadNodes& head) {
    io::OnnxModel model;
    model.producer = "pytorch";
    model.inputs = {{.name = "x", .shape = {"batch", 3, 6, 8}}};
    model.outputs = {{.name = "y", .shape = {"batch", 5}}};
    model.nodes = {head_node("Conv", {"x", "stem.weight"}, "z"),
                   head_node("GlobalAveragePool", {"z"}, "p"),
                   head_node("Flatten", {"p"}, "m", {{"axis", std::int64_t{1}}})};
    model.nodes.insert(model.nodes.end(), head.nodes.begin(), head.nodes.end());
    model.constants = {floats("stem.weight", {4, 3, 1, 1})};
    model.constants.insert(model.constants.end(), head.constants.begin(), head.constants.end());
    io::save_onnx(model, path_);
  }
  // The layers that are replaced for 9 classes.
  Names heads(const HeadNodes& head) {
    save(head);
    const models::OnnxImport found =
        models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kSkip);
    if (found.heads.empty()) {
      EXPECT_VALUES(found.notes.front(), "no last layer");
      return {};
    }
    const engine::Graph graph = models::build_model(
        path_, {.sample_shape = {6, 8, 3}, .classes = 9, .definition = found.definition});
    EXPECT_EQ(graph.nodes()[static_cast<std::size_t>(graph.logits())].shape, (engine::Shape{9}));
    return found.heads;
  }
  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

TEST_F(OnnxHeadsTest, ParametersOfTheNetworkItself) {
  const std::vector<io::NamedArray> constants{floats("w", {4, 5}), floats("b", {5})};
  EXPECT_EQ(
      heads({{head_node("MatMul", {"m", "w"}, "f"), head_node("Add", {"f", "b"}, "y")}, constants}),
      (Names{"w", "b"}));
  EXPECT_EQ(
      heads({{head_node("MatMul", {"m", "w"}, "f"), head_node("Add", {"b", "f"}, "y")}, constants}),
      (Names{"w", "b"}));
  EXPECT_EQ(heads({{head_node("Gemm", {"m", "w", "b"}, "y")}, constants}), (Names{"w", "b"}));
  EXPECT_EQ(heads({{head_node("MatMul", {"m", "w"}, "y")}, constants}), Names{"w"});
}

TEST_F(OnnxHeadsTest, ConvolutionsBeforeAReduction) {
  const std::vector<io::NamedArray> constants{floats("fc.weight", {5, 4, 1, 1}),
                                              floats("fc.bias", {5})};
  const io::OnnxNode conv = head_node("Conv", {"z", "fc.weight", "fc.bias"}, "c");
  const io::OnnxNode flat = head_node("Flatten", {"g"}, "y");
  EXPECT_EQ(heads({{conv, head_node("GlobalAveragePool", {"c"}, "g"), flat}, constants}),
            Names{"fc"});
  EXPECT_EQ(heads({{conv, head_node("GlobalMaxPool", {"c"}, "g"), flat}, constants}), Names{"fc"});
  for (const char* type : {"ReduceMean", "ReduceMax"}) {
    EXPECT_EQ(heads({{conv, reduced_head(type, "c", "y", {2, 3})}, constants}), Names{"fc"})
        << type;
    EXPECT_EQ(heads({{conv, reduced_head(type, "c", "r", {3}), reduced_head(type, "r", "y", {2})},
                     constants}),
              Names{"fc"})
        << type;
  }
  EXPECT_EQ(heads({{head_node("Conv", {"p", "fc.weight", "fc.bias"}, "g"), flat}, constants}),
            Names{"fc"});
}

TEST_F(OnnxHeadsTest, FactorsNormsAndSeveralLayers) {
  std::vector<io::NamedArray> constants{floats("fc.weight", {5, 4}), floats("fc.bias", {5}),
                                        floats("two.weight", {5, 4}), floats("two.bias", {5}),
                                        floats("scale", {1}, 2.0F)};
  for (const char* name : {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"})
    constants.push_back(floats(name, {5}));
  const std::vector<io::OnnxAttribute> turned{{"transB", std::int64_t{1}}};
  const io::OnnxNode fc = head_node("Gemm", {"m", "fc.weight", "fc.bias"}, "f", turned),
                     two = head_node("Gemm", {"m", "two.weight", "two.bias"}, "g", turned);
  EXPECT_EQ(heads({{fc, head_node("Mul", {"f", "scale"}, "y")}, constants}), Names{"fc"});
  EXPECT_EQ(heads({{fc, head_node("BatchNormalization",
                                  {"f", "norm.weight", "norm.bias", "norm.running_mean",
                                   "norm.running_var"},
                                  "y")},
                   constants}),
            (Names{"fc", "norm"}));
  EXPECT_EQ(heads({{fc, two, head_node("Add", {"f", "g"}, "y")}, constants}), (Names{"fc", "two"}));
}

// A layer at each position, followed by the choice of one or the largest number of a window, and a
// bias with a dimension of 1.
TEST_F(OnnxHeadsTest, ChosenPositionsAndBiasesOfOtherShapes) {
  const Ints shape{0, 4, 48};
  const std::vector<io::NamedArray> constants{
      floats("w", {4, 5}), floats("b", {1, 5}), floats("conv.weight", {5, 4, 1, 1}),
      onnx_constants::integers("rows", shape), first_index()};
  EXPECT_EQ(heads({{head_node("Reshape", {"z", "rows"}, "r"),
                    head_node("Transpose", {"r"}, "t", {{"perm", Ints{0, 2, 1}}}),
                    head_node("MatMul", {"t", "w"}, "f"),
                    head_node("Gather", {"f", "first"}, "y", {{"axis", std::int64_t{1}}})},
                   constants}),
            Names{"w"});
  EXPECT_EQ(heads({{head_node("Conv", {"z", "conv.weight"}, "c"),
                    head_node("MaxPool", {"c"}, "p2", {{"kernel_shape", Ints{6, 8}}}),
                    head_node("Flatten", {"p2"}, "y")},
                   constants}),
            Names{"conv"});
  EXPECT_EQ(
      heads({{head_node("MatMul", {"m", "w"}, "f"), head_node("Add", {"f", "b"}, "y")}, constants}),
      (Names{"w", "b"}));
}

// A parameter of the classes starts without an effect: 0 in a sum, 1 in a product.
TEST_F(OnnxHeadsTest, ReplacedParametersStartWithoutAnEffect) {
  save({{head_node("MatMul", {"m", "w"}, "f"), head_node("Mul", {"f", "scales"}, "g"),
         head_node("Add", {"g", "b"}, "y")},
        {floats("w", {4, 5}), floats("scales", {5}), floats("b", {5})}});
  const std::string definition = models::model_definition(path_);
  EXPECT_CONTAINS(definition,
                  "name = \"b\"\ninputs = []\nshape = [\"classes\"]\ndeviation = 0\n"
                  "initial = 0\n");
  EXPECT_CONTAINS(definition,
                  "name = \"scales\"\ninputs = []\nshape = [\"classes\"]\n"
                  "deviation = 0\ninitial = 1\n");
}

TEST_F(OnnxHeadsTest, LogitsThatOtherLayersReadAreNotReplaced) {
  EXPECT_EQ(heads({{head_node("MatMul", {"m", "w"}, "f"), head_node("MatMul", {"f", "square"}, "g"),
                    head_node("Add", {"f", "g"}, "y")},
                   {floats("w", {4, 5}), floats("square", {5, 5})}}),
            Names{});
  EXPECT_EQ(heads({{head_node("MatMul", {"m", "w"}, "f"), head_node("Softmax", {"f"}, "s"),
                    head_node("MatMul", {"s", "other"}, "g"),
                    head_node("MatMul", {"g", "last"}, "h"), head_node("Mul", {"h", "f"}, "y")},
                   {floats("w", {4, 5}), floats("other", {5, 3}), floats("last", {3, 5})}}),
            Names{});
}

}  // namespace
