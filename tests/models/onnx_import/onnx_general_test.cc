// Translations of general operators: which of them move no numbers, and what becomes one layer.
#include "models/onnx_import/onnx_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;

io::OnnxNode transpose(const std::string& from, const std::string& to, const Ints& order) {
  return {"Transpose", to, {from}, {to}, {{"perm", order}}};
}
io::OnnxNode node(const std::string& type, const std::vector<std::string>& inputs,
                  const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, to, inputs, {to}, std::move(attributes)};
}

// Two equal numbers.
io::NamedArray constant_floats(const std::string& name, float value) {
  io::NamedArray array = floats(name, {2}, value);
  const io::NamedArray one = scalar(name, value);
  std::copy(one.data.begin(), one.data.end(), array.data.begin() + 4);
  return array;
}

class OnnxGeneralTest : public testing::Test {
 protected:
  // The nodes go from the image "x", [batch, 6, 4, 5], to "end", which means and a matrix follow.
  models::OnnxImport imported(const std::vector<io::OnnxNode>& nodes,
                              const std::vector<io::NamedArray>& constants,
                              const Ints& means = {2, 3}) {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = {"batch", 6, 4, 5}}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = nodes;
    model.nodes.push_back(
        node("ReduceMean", {"end", "means"}, "mean", {{"keepdims", std::int64_t{0}}}));
    model.nodes.push_back(node("Gemm", {"mean", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}));
    model.constants = constants;
    model.constants.push_back(integers("means", means));
    model.constants.push_back(floats("fc.weight", {3, 6}));
    io::save_onnx(model, path_);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  // The kinds of layers, with the values of some options.
  std::string kinds(const models::OnnxImport& import) {
    std::string text;
    for (std::size_t at = import.definition.find("kind = \""); at != std::string::npos;
         at = import.definition.find("kind = \"", at + 1)) {
      const std::size_t begin = at + 8;
      text += (text.empty() ? "" : " ") +
              import.definition.substr(begin, import.definition.find('"', begin) - begin);
    }
    return text;
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

// The engine's images have their channels last.
TEST_F(OnnxGeneralTest, NormsOfChannelsNeedNoTransposition) {
  const models::OnnxImport found =
      imported({transpose("x", "last", {0, 2, 3, 1}),
                node("LayerNormalization", {"last", "norm.weight", "norm.bias"}, "normed"),
                node("MatMul", {"normed", "matrix"}, "product"),
                node("Add", {"linear.bias", "product"}, "sum"), node("Gelu", {"sum"}, "gelu"),
                transpose("gelu", "first", {0, 3, 1, 2}), node("Mul", {"scale", "first"}, "scaled"),
                node("Add", {"scaled", "x"}, "end")},
               {floats("norm.weight", {6}), floats("norm.bias", {6}), floats("matrix", {6, 6}),
                floats("linear.bias", {6}), floats("scale", {6, 1, 1})});
  EXPECT_EQ(kinds(found),
            "layer_norm dense gelu parameter reshape multiply add global_average_pool dense");
  EXPECT_CONTAINS(found.definition, "name = \"linear\"\ninputs = [\"norm\"]\nout = 6\nbias = true");
  EXPECT_CONTAINS(found.definition,
                  "kind = \"parameter\"\nname = \"scale\"\ninputs = []\nshape = [6, 1, 1]");
}

TEST_F(OnnxGeneralTest, PositionsAreReachedByOnePermutation) {
  const models::OnnxImport found =
      imported({node("Reshape", {"x", "flat"}, "rows"),  // [batch, 6, 20]
                node("MatMul", {"rows", "matrix"}, "end")},
               {integers("flat", {0, 6, -1}), floats("matrix", {20, 7})}, {2});
  EXPECT_EQ(kinds(found), "permute reshape dense reduce dense");
  EXPECT_CONTAINS(found.definition, "order = [2, 0, 1]");
}

// The mean takes a part of the one dimension that a dense layer has.
TEST_F(OnnxGeneralTest, AMeanOverAPartOfADimensionDividesItFirst) {
  const models::OnnxImport found =
      imported({node("Flatten", {"x"}, "flat"), node("MatMul", {"flat", "matrix"}, "product"),
                node("Reshape", {"product", "pairs"}, "end")},
               {floats("matrix", {120, 12}), integers("pairs", {0, 6, 2})}, {2});
  EXPECT_EQ(kinds(found), "flatten dense reshape reduce dense");
}

TEST_F(OnnxGeneralTest, ANumberIsAFactorOrAShift) {
  const models::OnnxImport found =
      imported({node("Mul", {"x", "two"}, "a"), node("Div", {"a", "four"}, "b"),
                node("Sub", {"two", "b"}, "end")},
               {scalar("two", 2), scalar("four", 4)});
  EXPECT_EQ(kinds(found), "scale_shift global_average_pool dense");
  EXPECT_CONTAINS(found.definition, "scale = -0.5\nshift = 2\n");
  EXPECT_EQ(kinds(imported({node("Mul", {"x", "two"}, "a"), node("Mul", {"half", "a"}, "end")},
                           {scalar("two", 2), scalar("half", 0.5)})),
            "global_average_pool dense");
}

// Products of the steps would not fit in 64 bits.
TEST_F(OnnxGeneralTest, ASliceMayNameAnAxisOfOneEntryAgainAndAgain) {
  constexpr std::int64_t kLarge = 1 << 30;
  const models::OnnxImport found = imported(
      {node("Slice", {"factor", "begins", "ends", "axes", "steps"}, "same"),
       node("Mul", {"x", "same"}, "a"), node("Sub", {"factor", "a"}, "end")},
      {floats("factor", {1}, 2), integers("begins", {0, 0, 0, 0}), integers("ends", {1, 1, 1, 1}),
       integers("axes", {0, 0, 0, 0}), integers("steps", {kLarge, kLarge, kLarge, kLarge})});
  EXPECT_CONTAINS(found.definition, "scale = -2\nshift = 2\n");
}

TEST_F(OnnxGeneralTest, WindowsWithoutALayerAreEntriesOfColumnsAndRows) {
  const auto pool = [&](const Ints& kernel) {
    return imported({node("MaxPool", {"x"}, "end", {{"kernel_shape", kernel}})}, {});
  };
  EXPECT_EQ(kinds(pool({2, 2})), "max_pool2d global_average_pool dense");
  const models::OnnxImport found = pool({2, 3});
  EXPECT_EQ(kinds(found), "gather reshape reduce gather reshape reduce global_average_pool dense");
  EXPECT_CONTAINS(found.definition, "axis = 1\nindices = [0, 1, 2, 1, 2, 3, 2, 3, 4]\n");
  EXPECT_CONTAINS(found.definition, "axis = 0\nindices = [0, 1, 1, 2, 2, 3]\n");
}

// As the pooled branch of DeepLab.
TEST_F(OnnxGeneralTest, AnImageOfOnePixelIsResized) {
  io::NamedArray scales = floats("scales", {4}, 2);  // 2, 3, 4, 5
  for (const std::ptrdiff_t at : {0, 4})
    std::ranges::copy(scalar("one", 1).data, scales.data.begin() + at);
  const models::OnnxImport found =
      imported({node("GlobalAveragePool", {"x"}, "pixel"),
                node("Resize", {"pixel", "", "scales"}, "end", {{"mode", std::string("linear")}})},
               {scales});
  EXPECT_EQ(kinds(found), "global_average_pool reshape resize global_average_pool dense");
}

// A small file must not need much memory.
TEST_F(OnnxGeneralTest, NumbersOfLargeImagesAreNotComputed) {
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 3, 1 << 20, 1 << 20}}};
  model.outputs = {{.name = "y", .shape = {"batch", 3}}};
  model.nodes = {
      node("AveragePool", {"x"}, "end", {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}),
      node("GlobalAveragePool", {"end"}, "mean"), node("Flatten", {"mean"}, "y")};
  io::save_onnx(model, path_);
  try {
    models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
    ADD_FAILURE() << "accepted";
  } catch (const engine::ModelError& error) {
    EXPECT_VALUES(error.what(), "[1048576, 1048576] 1048576 elements");
  }
}

// A truth is 1 or 0: a conversion to booleans adds no layer.
TEST_F(OnnxGeneralTest, ComparisonsChooseBetweenValues) {
  const models::OnnxImport found =
      imported({node("GreaterOrEqual", {"x", "two"}, "above"), node("Less", {"x", "four"}, "below"),
                node("Not", {"below"}, "far"), node("And", {"above", "far"}, "both"),
                node("Cast", {"both"}, "float", {{"to", std::int64_t{1}}}),
                node("Cast", {"float"}, "truth", {{"to", std::int64_t{9}}}),
                node("Where", {"truth", "x", "two"}, "end")},
               {scalar("two", 2), scalar("four", 4)});
  EXPECT_EQ(kinds(found),
            "constant compare constant compare scale_shift multiply constant where "
            "global_average_pool dense");
  EXPECT_CONTAINS(found.definition, "function = \"greater_equal\"");
  EXPECT_CONTAINS(found.definition, "function = \"less\"");
}

// Each product reads the one before twice.
TEST_F(OnnxGeneralTest, ALongExpressionOfTruthsIsOne) {
  std::vector<io::OnnxNode> nodes{node("Greater", {"x", "two"}, "c0")};
  for (int i = 0; i < 64; ++i) {
    const std::string from = "c" + std::to_string(i);
    nodes.push_back(node("And", {from, from}, "c" + std::to_string(i + 1)));
  }
  nodes.push_back(node("Cast", {"c64"}, "truth", {{"to", std::int64_t{9}}}));
  nodes.push_back(node("Where", {"truth", "x", "two"}, "end"));
  const models::OnnxImport found = imported(nodes, {scalar("two", 2)});
  EXPECT_EQ(found.definition.find("scale_shift"), std::string::npos);
}

// The shape of a constant has one -1 and no other negative extent.
TEST_F(OnnxGeneralTest, NegativeExtentsOfAConstantAreRefused) {
  for (const Ints& extents : {Ints{-1, -1}, Ints{-2, -3}, Ints{-6, -1}, Ints{-2, -3, -1}}) {
    std::string fault;
    try {
      imported({node("Reshape", {"numbers", "extents"}, "turned"),
                node("Concat", {"turned", "turned"}, "all", {{"axis", std::int64_t{0}}}),
                node("Add", {"x", "all"}, "end")},
               {integers("numbers", {1, 2, 3, 4, 5, 6}), integers("extents", extents)});
    } catch (const engine::ModelError& error) {
      fault = error.what();
    }
    EXPECT_VALUES(fault, "(Reshape): a constant [6]") << ::testing::PrintToString(extents);
  }
}

// All are one layer's output; the search for its readers does not visit those that are done.
TEST_F(OnnxGeneralTest, ManyFactorsOfOneAreLeftOut) {
  constexpr int kFactors = 30'000;
  std::vector<io::OnnxNode> nodes{node("Relu", {"x"}, "y0")};
  for (int i = 0; i < kFactors; ++i)
    nodes.push_back(node("Mul", {"y" + std::to_string(i), "one"}, "y" + std::to_string(i + 1)));
  nodes.push_back(node("Relu", {"y" + std::to_string(kFactors)}, "end"));
  EXPECT_EQ(kinds(imported(nodes, {scalar("one", 1)})), "relu relu global_average_pool dense");
}

TEST_F(OnnxGeneralTest, AConditionOfNumbersIsThatTheyAreNotZero) {
  const models::OnnxImport found =
      imported({node("Cast", {"x"}, "truth", {{"to", std::int64_t{9}}}),
                node("Where", {"truth", "two", "x"}, "end")},
               {scalar("two", 2)});
  EXPECT_EQ(kinds(found), "constant compare scale_shift constant where global_average_pool dense");
}

// Several rows for each sample: [6 batch, 4, 5] is padded along its columns, then along rows of 36.
TEST_F(OnnxGeneralTest, PadsOfRowsAreThoseOfColumns) {
  const models::OnnxImport found = imported(
      {node("Reshape", {"x", "rows"}, "stacked"), node("Pad", {"stacked", "pads"}, "wide"),
       node("Flatten", {"wide"}, "flat", {{"axis", std::int64_t{1}}}),
       node("Pad", {"flat", "more"}, "wider"), node("Reshape", {"wider", "images"}, "end")},
      {integers("rows", {-1, 4, 5}), integers("pads", {0, 0, 1, 0, 0, 2}),
       integers("more", {0, 1, 0, 3}), integers("images", {-1, 6, 6, 6})});
  EXPECT_CONTAINS(found.definition, "padding = [0, 1, 0, 2]");
  EXPECT_CONTAINS(found.definition, "padding = [0, 1, 0, 3]");
}

TEST_F(OnnxGeneralTest, AConstantTimesAParameterIsALayer) {
  const models::OnnxImport found = imported(
      {node("MatMul", {"table", "linear.weight"}, "product"), node("Gelu", {"bias"}, "shift"),
       node("Add", {"product", "shift"}, "sum"),
       node("ReduceMean", {"sum", "first"}, "vector", {{"keepdims", std::int64_t{0}}}),
       node("Reshape", {"vector", "channels"}, "scale"), node("Mul", {"x", "scale"}, "end")},
      {floats("table", {3, 5, 2}, 0.5F), floats("linear.weight", {2, 6}), floats("bias", {5, 6}),
       integers("first", {0, 1}), integers("channels", {1, 6, 1, 1})});
  EXPECT_CONTAINS(found.definition, "kind = \"dense\"\nname = \"linear\"");
  EXPECT_CONTAINS(found.definition, "kind = \"parameter\"\nname = \"bias\"");
}

TEST_F(OnnxGeneralTest, OperandsThatDoNotFitAreRefused) {
  const auto fault = [&](const std::vector<io::OnnxNode>& nodes,
                         const std::vector<io::NamedArray>& constants) -> std::string {
    try {
      imported(nodes, constants);
      return "accepted";
    } catch (const engine::ModelError& error) {
      return error.what();
    }
  };
  EXPECT_VALUES(fault({node("ReduceSum", {"x", "axes"}, "end")}, {integers("axes", {2, -2})}),
                "axes [2, -2] once");
  EXPECT_VALUES(fault({node("GroupNormalization", {"x", "one", "one"}, "end",
                            {{"num_groups", std::int64_t{2}}})},
                      {scalar("one", 1)}),
                "'end' (GroupNormalization): input 1 [], [2]");
  EXPECT_VALUES(
      fault({node("Concat", {"empty", "empty"}, "both", {{"axis", std::int64_t{0}}}),
             node("Equal", {"both", "both"}, "equal"), node("Where", {"equal", "x", "x"}, "end")},
            {floats("empty", {0})}),
      "constant [0] elements");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_VALUES(
      fault({{"Split", "split", {"x", "parts"}, {"a", "b", "end"}, {{"axis", std::int64_t{1}}}}},
            {integers("parts", {kMost, kMost, 8})}),  // their sum is 6 in 64 bits
      "'split' (Split): 6 3 parts");
  EXPECT_CONTAINS(fault({node("Transpose", {"none"}, "turned", {{"perm", Ints{}}}),
                         node("Reshape", {"x", "turned"}, "end")},
                        {integers("none", {})}),
                  "perm [] of [0]");
  EXPECT_CONTAINS(fault({node("ReduceSum", {"x", "axes"}, "sums", {{"keepdims", std::int64_t{0}}}),
                         node("Gemm", {"sums", "matrix"}, "end")},
                        {integers("axes", {1, 2, 3}), floats("matrix", {1, 6})}),
                  "it reads [batch], expected [batch, inputs]");
  EXPECT_VALUES(fault({node("Reshape", {"x", "rows"}, "stacked"),
                       node("Pad", {"stacked", "pads"}, "end", {{"mode", std::string("edge")}})},
                      {integers("rows", {-1, 4, 5}), integers("pads", {0, 0, 1, 0, 0, 2})}),
                "'end' (Pad): 'edge' [0, 0, 1, 0, 0, 2] [6 batch, 4, 5], constant 0, image");
}

// Networks without batch norms: the rows of a weight get a mean of 0 and a variance of 1, by the
// operator of batch norms.
TEST_F(OnnxGeneralTest, WeightsAreStandardized) {
  const auto network = [&](std::vector<io::OnnxAttribute> attributes) {
    return imported({node("Reshape", {"conv.weight", "rows"}, "weight"),
                     node("BatchNormalization", {"weight", "one", "zero", "zero", "one"},
                          "standard", std::move(attributes)),
                     node("Reshape", {"standard", "shape"}, "kernel"),
                     node("Conv", {"x", "kernel", "conv.bias"}, "end",
                          {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}})},
                    {floats("conv.weight", {6, 6, 3, 3}), floats("conv.bias", {6}),
                     integers("rows", {1, 6, -1}), floats("one", {6}, 1), floats("zero", {6}),
                     integers("shape", {6, 6, 3, 3})});
  };
  const models::OnnxImport found = network({{"training_mode", std::int64_t{1}}});
  EXPECT_CONTAINS(found.definition, "kind = \"layer_norm\"");
  EXPECT_CONTAINS(found.definition, "kind = \"convolve\"\n");
  EXPECT_CONTAINS(found.definition, "stride = [2, 1]\npadding = 1\n");
  EXPECT_EQ(found.arrays[0].name, "conv.weight");
  EXPECT_CONTAINS(network({}).definition, "kind = \"divide\"");
}

// A parameter as the output, which has no samples.
TEST_F(OnnxGeneralTest, AnOutputWithoutSamplesIsRefused) {
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 6, 4, 5}}};
  model.outputs = {{.name = "y", .shape = {4, 3, 2, 2}}};
  model.nodes = {node("Relu", {"x"}, "unused"), node("Exp", {"map"}, "y")};
  model.constants = {floats("map", {4, 3, 2, 2})};
  io::save_onnx(model, path_);
  try {
    models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
    ADD_FAILURE() << "accepted";
  } catch (const engine::ModelError& error) {
    EXPECT_VALUES(error.what(), "'y' [4, 3, 2, 2]");
  }
}

// A position embedding, as it is computed from the sizes of a batch.
TEST_F(OnnxGeneralTest, ConstantsForEachSampleAreComputedOnce) {
  const models::OnnxImport found =
      imported({node("Shape", {"x"}, "shape"), node("Gather", {"shape", "places"}, "sizes"),
                node("ConstantOfShape", {"sizes"}, "zeros"), node("Add", {"zeros", "one"}, "ones"),
                node("CumSum", {"ones", "axis"}, "rows"),
                node("Unsqueeze", {"rows", "axis"}, "map"), node("Add", {"x", "map"}, "end")},
               {integers("places", {0, 2, 3}), integers("axis", {1}), scalar("one", 1)});
  EXPECT_EQ(kinds(found), "constant reshape add global_average_pool dense");
  ASSERT_FALSE(found.arrays.empty());
  EXPECT_EQ(found.arrays[0].shape, (Ints{1, 1, 4, 5}));
  std::vector<float> rows(20);
  ASSERT_EQ(found.arrays[0].data.size(), rows.size() * sizeof(float));
  std::memcpy(rows.data(), found.arrays[0].data.data(), found.arrays[0].data.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i], static_cast<float>(i / 5 + 1)) << i;
}

TEST_F(OnnxGeneralTest, SumsOverSamplesAreRefused) {
  try {
    imported({node("Shape", {"x"}, "shape"), node("Gather", {"shape", "places"}, "sizes"),
              node("ConstantOfShape", {"sizes"}, "zeros"),
              node("CumSum", {"zeros", "axis"}, "samples"), node("Add", {"x", "samples"}, "end")},
             {integers("places", {0, 2, 3}), integers("axis", {0})});
    ADD_FAILURE() << "accepted";
  } catch (const engine::ModelError& error) {
    EXPECT_VALUES(error.what(), "axis 0 samples");
  }
}

// The number of samples is not known when the file is read.
TEST_F(OnnxGeneralTest, AComparisonWithTheNumberOfSamplesIsRefused) {
  EXPECT_VALUES(
      test_support::error_of<engine::ModelError>([&] {
        imported(
            {node("Shape", {"x"}, "shape"), node("Gather", {"shape", "zero"}, "batch"),
             node("Equal", {"x", "batch"}, "equal"), node("Where", {"equal", "x", "x"}, "end")},
            {integers("zero", {0})});
      }),
      "'equal' (Equal): extent");
}

// GroupNorm, as PyTorch exports it.
TEST_F(OnnxGeneralTest, AGroupNormHasTheFactorsThatFollow) {
  const models::OnnxImport found =
      imported({node("Reshape", {"x", "groups"}, "runs"),
                node("InstanceNormalization", {"runs", "ones", "zeros"}, "normed"),
                node("Reshape", {"normed", "image"}, "again"),
                node("Mul", {"again", "norm.weight"}, "scaled"),
                node("Add", {"scaled", "norm.bias"}, "end")},
               {integers("groups", {0, 2, -1}), integers("image", {-1, 6, 4, 5}),
                constant_floats("ones", 1), constant_floats("zeros", 0),
                floats("norm.weight", {6, 1, 1}), floats("norm.bias", {6, 1, 1})});
  EXPECT_EQ(kinds(found), "group_norm global_average_pool dense");
  EXPECT_CONTAINS(found.definition, "name = \"norm\"\ninputs = [\"input\"]\ngroups = 2\n");
}

// A norm with a bias has no weight after it, and one whose output other nodes read as another shape
// does not change.
TEST_F(OnnxGeneralTest, AGroupNormHasNoFactorsOfOtherValues) {
  const std::vector<io::NamedArray> constants{
      constant_floats("ones", 1),       constant_floats("zeros", 0),
      integers("groups", {0, 2, -1}),   integers("image", {-1, 6, 4, 5}),
      floats("norm.weight", {6, 1, 1}), floats("norm.bias", {6, 1, 1})};
  const std::vector<io::OnnxNode> norm{
      node("Reshape", {"x", "groups"}, "runs"),
      node("InstanceNormalization", {"runs", "ones", "zeros"}, "normed"),
      node("Reshape", {"normed", "image"}, "again")};
  std::vector<io::OnnxNode> nodes = norm;
  nodes.push_back(node("Add", {"again", "norm.bias"}, "shifted"));
  nodes.push_back(node("Mul", {"shifted", "norm.weight"}, "end"));
  EXPECT_CONTAINS(kinds(imported(nodes, constants)), "group_norm parameter reshape multiply");
  nodes = norm;
  nodes.push_back(transpose("again", "turned", {0, 1, 3, 2}));
  nodes.push_back(node("Mul", {"turned", "norm.weight"}, "scaled"));
  nodes.push_back(transpose("scaled", "back", {0, 1, 3, 2}));
  nodes.push_back(node("Add", {"again", "back"}, "end"));
  EXPECT_CONTAINS(kinds(imported(nodes, constants)), "group_norm parameter");
}

// The sum has another shape, so that its bias is that of no layer.
TEST_F(OnnxGeneralTest, ABiasOfAnotherShapeOfAValueIsALayer) {
  const auto network = [&](const std::string& from) {
    return imported(
        {transpose("x", "last", {0, 2, 3, 1}), node("MatMul", {"last", "linear.weight"}, "product"),
         node("Reshape", {"product", "rows"}, "turned"),
         node("Add", {"turned", "linear.bias"}, "sum"), node("Reshape", {"sum", "image"}, "same"),
         node("Mul", {"same", from}, "both"), transpose("both", "end", {0, 3, 1, 2})},
        {floats("linear.weight", {6, 6}), floats("linear.bias", {6}), integers("rows", {0, 20, 6}),
         integers("image", {0, 4, 5, 6})});
  };
  EXPECT_CONTAINS(network("product").definition, "kind = \"parameter\"\nname = \"linear.bias\"");
  EXPECT_CONTAINS(network("last").definition, "name = \"linear\"\n");
  EXPECT_EQ(network("last").definition.find("\"parameter\""), std::string::npos);
}

// A + A^T of one parameter: both are its layer, in two orders.
TEST_F(OnnxGeneralTest, AParameterAndItsTransposeAreTwoValues) {
  const models::OnnxImport found =
      imported({transpose("table.weight", "turned", {1, 0}),
                node("MatMul", {"table.weight", "turned"}, "square"),
                node("Reshape", {"x", "flat"}, "rows"), node("MatMul", {"rows", "square"}, "end")},
               {floats("table.weight", {20, 3}), integers("flat", {0, 6, -1})}, {2});
  EXPECT_CONTAINS(kinds(found), "matmul permute reshape matmul reduce dense");
  EXPECT_EQ(kinds(found).find("parameter"), kinds(found).rfind("parameter"));
  const models::OnnxImport sum = imported(
      {transpose("table.weight", "turned", {1, 0}), node("Add", {"table.weight", "turned"}, "both"),
       node("Reshape", {"x", "flat"}, "rows"), node("MatMul", {"rows", "both"}, "end")},
      {floats("table.weight", {20, 20}), integers("flat", {0, 6, -1})}, {2});
  EXPECT_CONTAINS(kinds(sum), "permute add");
}

// Only the same numbers in the same order are gated by themselves.
TEST_F(OnnxGeneralTest, GatesOfOtherNumbersAreProducts) {
  const auto gated = [&](const std::vector<io::OnnxNode>& between) {
    std::vector<io::OnnxNode> nodes{node("Slice", {"x", "0", "4", "3"}, "square"),
                                    node("Sigmoid", {"square"}, "gate")};
    nodes.insert(nodes.end(), between.begin(), between.end());
    return kinds(imported(nodes, {integers("0", {0}), integers("4", {4}), integers("3", {3})}));
  };
  EXPECT_EQ(gated({node("Mul", {"gate", "square"}, "end")}),
            "slice activation global_average_pool dense");
  EXPECT_CONTAINS(
      gated({transpose("gate", "turned", {0, 1, 3, 2}), node("Mul", {"turned", "square"}, "end")}),
      "multiply");
}

// A sum of a value and a difference would lose the digits of the smaller one.
TEST_F(OnnxGeneralTest, ALargerValueIsChosen) {
  for (const auto& [type, function] : {std::pair("Max", "greater"), {"Min", "less"}}) {
    const models::OnnxImport found =
        imported({node("Neg", {"x"}, "other"), node(type, {"x", "other"}, "end")}, {});
    EXPECT_EQ(kinds(found),
              "scale_shift scale_shift scale_shift add compare where compare where "
              "global_average_pool dense");
    EXPECT_CONTAINS(found.definition, std::string("function = \"") + function + "\"");
  }
}

TEST_F(OnnxGeneralTest, ASecondLimitAppliesAfterTheFirstOne) {
  const models::OnnxImport found =
      imported({node("Clip", {"x", "high", "low"}, "end")}, {scalar("low", 1), scalar("high", 2)});
  EXPECT_CONTAINS(found.definition, "function = \"clip\"\nlow = 2\n");
  EXPECT_CONTAINS(found.definition, "function = \"clip\"\nhigh = 1\n");
}

// ONNX's shape has five dimensions then.
TEST_F(OnnxGeneralTest, ANumberOfMoreDimensionsIsNoFactor) {
  const models::OnnxImport found =
      imported({node("Reshape", {"two", "five"}, "number"), node("Mul", {"x", "number"}, "wide"),
                node("Squeeze", {"wide", "first"}, "end")},
               {scalar("two", 2), integers("five", {1, 1, 1, 1, 1}), integers("first", {0})});
  EXPECT_CONTAINS(kinds(found), "multiply");
}

// x / 2 (1 + erf(x / sqrt(2)))
TEST_F(OnnxGeneralTest, TheExpressionOfGeluBecomesOne) {
  const models::OnnxImport found =
      imported({node("Relu", {"x"}, "r"), node("Div", {"r", "root"}, "a"), node("Erf", {"a"}, "b"),
                node("Add", {"b", "one"}, "c"), node("Mul", {"r", "c"}, "d"),
                node("Mul", {"d", "half"}, "end")},
               {scalar("root", std::sqrt(2.0F)), scalar("one", 1), scalar("half", 0.5)});
  EXPECT_EQ(kinds(found), "relu gelu global_average_pool dense");
}

TEST_F(OnnxGeneralTest, TheExpressionOfGeluReadsTheSameNumbers) {
  io::NamedArray first = integers("0", {0}), second = integers("1", {1});
  first.shape = second.shape = {};
  const std::string found = kinds(imported(
      {node("Div", {"x", "root"}, "a"), node("Erf", {"a"}, "b"), node("Add", {"b", "one"}, "c"),
       node("Gather", {"c", "0"}, "row", {{"axis", std::int64_t{2}}}),
       node("Gather", {"x", "1"}, "other", {{"axis", std::int64_t{2}}}),
       node("Mul", {"other", "row"}, "end")},
      {scalar("root", std::sqrt(2.0F)), scalar("one", 1), first, second}, {2}));
  EXPECT_EQ(found.find("gelu"), std::string::npos) << found;
  const std::string shifted = kinds(imported(
      {node("Div", {"x", "root"}, "a"), node("Add", {"a", "one"}, "s"), node("Erf", {"s"}, "b"),
       node("Add", {"b", "one"}, "c"), node("Mul", {"x", "c"}, "end")},
      {scalar("root", std::sqrt(2.0F)), scalar("one", 1)}));
  EXPECT_EQ(shifted.find("gelu"), std::string::npos) << shifted;
}

// The parts of one projection: queries, keys and values for two heads of 3 on 20 positions.
std::vector<io::OnnxNode> attention_nodes() {
  return {node("Reshape", {"x", "flat"}, "columns"),
          transpose("columns", "rows", {0, 2, 1}),
          node("MatMul", {"rows", "matrix"}, "qkv"),
          node("Reshape", {"qkv", "parts"}, "five"),
          transpose("five", "split", {2, 0, 3, 1, 4}),
          node("Gather", {"split", "0"}, "q", {{"axis", std::int64_t{0}}}),
          node("Gather", {"split", "1"}, "k", {{"axis", std::int64_t{0}}}),
          node("Gather", {"split", "2"}, "v", {{"axis", std::int64_t{0}}}),
          node("Mul", {"q", "factor"}, "scaled"),
          transpose("k", "turned", {0, 1, 3, 2}),
          node("MatMul", {"scaled", "turned"}, "scores"),
          node("Softmax", {"scores"}, "weights", {{"axis", std::int64_t{-1}}}),
          node("MatMul", {"weights", "v"}, "heads"),
          transpose("heads", "positions", {0, 2, 1, 3}),
          node("Reshape", {"positions", "joined"}, "end")};
}

std::vector<io::NamedArray> attention_constants(float factor) {
  std::vector<io::NamedArray> all{integers("flat", {0, 6, -1}),
                                  floats("matrix", {6, 18}),
                                  integers("parts", {-1, 20, 3, 2, 3}),
                                  integers("0", {0}),
                                  integers("1", {1}),
                                  integers("2", {2}),
                                  scalar("factor", factor),
                                  integers("joined", {0, 20, 6})};
  for (std::size_t i = 3; i < 6; ++i) all[i].shape = {};
  return all;
}

TEST_F(OnnxGeneralTest, UnmaskedAttentionBecomesOneLayer) {
  const models::OnnxImport found =
      imported(attention_nodes(), attention_constants(1 / std::sqrt(3.0F)), {1});
  EXPECT_EQ(kinds(found), "dense reshape self_attention reduce dense");
  EXPECT_CONTAINS(found.definition, "heads = 2\n");
}

// Another factor, or another order of queries and keys, is no attention of the engine's layer.
TEST_F(OnnxGeneralTest, OtherAttentionIsProducts) {
  const models::OnnxImport scaled = imported(attention_nodes(), attention_constants(2), {1});
  EXPECT_EQ(scaled.definition.find("self_attention"), std::string::npos);
  EXPECT_CONTAINS(scaled.definition, "transpose_second = true\nscale = 2\n");
  std::vector<io::OnnxNode> swapped = attention_nodes();
  std::swap(swapped[5].inputs[1], swapped[6].inputs[1]);
  EXPECT_EQ(imported(swapped, attention_constants(1 / std::sqrt(3.0F)), {1})
                .definition.find("self_attention"),
            std::string::npos);
}

// Einsum of the same operands: scores, their mean, and a product without a sum.
TEST_F(OnnxGeneralTest, EinsumIsTheProductOfItsDimensions) {
  const auto equation = [](const char* text) {
    return std::vector<io::OnnxAttribute>{{"equation", std::string(text)}};
  };
  std::vector<io::OnnxNode> attention = attention_nodes();
  attention.erase(attention.begin() + 9);
  attention[9] = node("Einsum", {"scaled", "k"}, "scores", equation("bhid,bhjd->bhij"));
  attention[11] =
      node("Einsum", {"weights", "v"}, "heads", equation("b h i j, b h j d -> b h i d"));
  EXPECT_EQ(kinds(imported(attention, attention_constants(1 / std::sqrt(3.0F)), {1})),
            "dense reshape self_attention reduce dense");
  EXPECT_EQ(kinds(imported({node("Einsum", {"x", "m"}, "end", equation("...chw,cd->...dhw"))},
                           {floats("m", {6, 6})})),
            "parameter reshape matmul reshape global_average_pool dense");
  EXPECT_EQ(kinds(imported({node("Einsum", {"x", "x"}, "end", equation("bchw,bchw->bchw"))}, {})),
            "multiply global_average_pool dense");
  for (const char* wrong : {"bchw,bchw->bcc", "bcch->bh", "bchw->bch", "bchw,bchw,bchw->b",
                            "bch,bchw->bch", "bchw,bchw->bz", ""}) {
    try {
      imported({node("Einsum", {"x", "x"}, "end", equation(wrong))}, {});
      ADD_FAILURE() << wrong;
    } catch (const engine::ModelError& error) {
      EXPECT_CONTAINS(error.what(), std::string("equation '") + wrong + "', expected one or two ");
    }
  }
}

// Weights in another order, or those of one position, are no attention.
TEST_F(OnnxGeneralTest, ChangedWeightsOfAttentionAreProducts) {
  std::vector<io::OnnxNode> nodes = attention_nodes();
  nodes.insert(nodes.begin() + 12, transpose("weights", "other", {0, 1, 3, 2}));
  nodes[13].inputs[0] = "other";
  const std::string found = kinds(imported(nodes, attention_constants(1 / std::sqrt(3.0F)), {1}));
  EXPECT_EQ(found.find("attention"), std::string::npos) << found;
}

// Indices and masks are computed when the file is read.
TEST_F(OnnxGeneralTest, ConstantsAreComputed) {
  const models::OnnxImport found = imported(
      {node("Range", {"zero", "four", "one"}, "r"), node("Unsqueeze", {"r", "last"}, "column"),
       node("Cast",
            {
                "column",
            },
            "real", {{"to", std::int64_t{1}}}),
       node("Mul", {"real", "factor"}, "mask"), node("Add", {"x", "mask"}, "end")},
      {[] {
         auto a = integers("zero", {0});
         a.shape = {};
         return a;
       }(),
       [] {
         auto a = integers("four", {4});
         a.shape = {};
         return a;
       }(),
       [] {
         auto a = integers("one", {1});
         a.shape = {};
         return a;
       }(),
       integers("last", {1}), scalar("factor", 0.5)});
  EXPECT_EQ(kinds(found), "constant reshape add global_average_pool dense");
  std::vector<float> values(4);
  for (const io::NamedArray& array : found.arrays)
    if (array.name.ends_with(".value")) {
      EXPECT_EQ(array.shape, (Ints{4, 1}));
      EXPECT_EQ(array.section, io::Section::kBuffer);
      std::memcpy(values.data(), array.data.data(), array.data.size());
    }
  EXPECT_EQ(values, (std::vector<float>{0, 0.5, 1, 1.5}));
}

// The product of the other extents exceeds 64 bits.
TEST_F(OnnxGeneralTest, ATensorWithoutElementsMayHaveLargeExtents) {
  std::string fault;
  try {
    imported({node("ConstantOfShape", {"extents"}, "empty"),
              node("Add", {"empty", "empty"}, "twice"), node("Add", {"x", "twice"}, "end")},
             {integers("extents", {0, std::int64_t{1} << 62, 9})});
  } catch (const engine::ModelError& error) {
    fault = error.what();
  }
  EXPECT_VALUES(fault, "[0, 4611686018427387904, 9] elements");
}

// Copies of a constant need memory as well.
TEST_F(OnnxGeneralTest, CopiesOfConstantsAreLimited) {
  std::vector<io::OnnxNode> nodes{node("ConstantOfShape", {"large"}, "c0")};
  for (int i = 0; i < 40; ++i)
    nodes.push_back(node(i % 2 == 0 ? "Cast" : "Neg", {"c" + std::to_string(i)},
                         "c" + std::to_string(i + 1), {{"to", std::int64_t{1}}}));
  nodes.push_back(node("Add", {"x", "c40"}, "end"));
  std::string fault;
  try {
    imported(nodes, {integers("large", {1 << 20})});
  } catch (const engine::ModelError& error) {
    fault = error.what();
  }
  EXPECT_VALUES(fault, "33554432 elements");
}

TEST_F(OnnxGeneralTest, FunctionsOfIntegersAreIntegers) {
  const auto chosen = [&](const io::OnnxNode& function, const std::vector<io::NamedArray>& more) {
    return imported({function, node("Gather", {"x", "places"}, "end", {{"axis", std::int64_t{1}}})},
                    more, {2, 3})
        .definition;
  };
  EXPECT_CONTAINS(chosen(node("Abs", {"a"}, "places"), {integers("a", {-5, 2, 0, -1, 3, 4})}),
                  "indices = [5, 2, 0, 1, 3, 4]");
  EXPECT_CONTAINS(chosen(node("Pow", {"a", "b"}, "places"),
                         {integers("a", {-1, 2, 0, -2, 1, 1}), integers("b", {2})}),
                  "indices = [1, 4, 0, 4, 1, 1]");
  EXPECT_CONTAINS(chosen(node("Pow", {"a", "b"}, "places"),
                         {integers("a", {4, 1, 0, 4, 9, 16}), scalar("b", 0.5)}),
                  "indices = [2, 1, 0, 2, 3, 4]");
  EXPECT_CONTAINS(chosen(node("Mod", {"a", "b"}, "places", {{"fmod", std::int64_t{1}}}),
                         {integers("a", {-7, 7, 5, 0, 4, 2}), integers("b", {6})}),
                  "indices = [5, 1, 5, 0, 4, 2]");  // -1 is the last entry
}

TEST_F(OnnxGeneralTest, AParameterIsATruthIfItIsNotZero) {
  const models::OnnxImport found =
      imported({node("Cast", {"scale"}, "truth", {{"to", std::int64_t{9}}}),
                node("Where", {"truth", "x", "zero"}, "end")},
               {floats("scale", {6, 1, 1}), scalar("zero", 0)});
  EXPECT_CONTAINS(kinds(found), "parameter constant compare scale_shift constant");
}

// Pads below 0 cut the image first.
TEST_F(OnnxGeneralTest, BordersRepeatWhatIsLeftOfAnImage) {
  const models::OnnxImport found =
      imported({node("Pad", {"x", "pads"}, "end", {{"mode", std::string("wrap")}})},
               {integers("pads", {0, 0, 0, -1, 0, 0, 0, 2})});
  EXPECT_CONTAINS(found.definition, "indices = [1, 2, 3, 4, 1, 2]");
}

TEST_F(OnnxGeneralTest, APadBeforeAMaximumMayBeInfinite) {
  const models::OnnxImport found =
      imported({node("Pad", {"x", "pads", "low"}, "wide"),
                node("MaxPool", {"wide"}, "end", {{"kernel_shape", Ints{2, 2}}})},
               {integers("pads", {0, 0, 0, 0, 0, 0, 1, 1}),
                scalar("low", -std::numeric_limits<float>::infinity())});
  EXPECT_CONTAINS(found.definition, "value = -inf\n");
}

// The factor of an unknown extent is unknown.
TEST_F(OnnxGeneralTest, AKnownSizeOfAnOpenImageHasNoFactor) {
  const auto resized = [&](std::vector<io::OnnxAttribute> attributes) -> std::string {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = {"batch", 3, "height", "width"}}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = {
        node("Shape", {"x"}, "shape", {{"start", std::int64_t{0}}, {"end", std::int64_t{2}}}),
        node("Concat", {"shape", "size"}, "sizes", {{"axis", std::int64_t{0}}}),
        node("Resize", {"x", "", "", "sizes"}, "end", std::move(attributes)),
        node("GlobalAveragePool", {"end"}, "mean"), node("Flatten", {"mean"}, "y")};
    model.constants = {integers("size", {8, 8})};
    io::save_onnx(model, path_);
    try {
      return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad).definition;
    } catch (const engine::ModelError& error) {
      return error.what();
    }
  };
  EXPECT_VALUES(resized({}), "'end' Resize fixed height width");
  EXPECT_CONTAINS(resized({{"mode", std::string("linear")}}), "size = 8\n");
  EXPECT_CONTAINS(resized({{"mode", std::string("linear")},
                           {"keep_aspect_ratio_policy", std::string("not_larger")}}),
                  "keep_aspect_ratio_policy 'not_larger', expected stretch");
}

TEST_F(OnnxGeneralTest, OperandsMayHaveFewerNumbers) {
  const models::OnnxImport normed = imported(
      {node("LayerNormalization", {"x", "n.weight", "n.bias"}, "end", {{"axis", std::int64_t{2}}})},
      {floats("n.weight", {5}), floats("n.bias", {5})});
  EXPECT_CONTAINS(kinds(normed), "layer_norm");
  EXPECT_CONTAINS(normed.definition, "affine = false");
  const auto gemm = [&](const std::vector<std::string>& inputs, const Ints& shape, float beta) {
    return imported({node("ReduceMean", {"x", "means"}, "rows", {{"keepdims", std::int64_t{0}}}),
                     node("Gemm", inputs, "product", {{"beta", beta}}),
                     node("Unsqueeze", {"product", "means"}, "end")},
                    {floats("matrix", {6, 6}), floats("c", shape, 3)});
  };
  EXPECT_EQ(kinds(gemm({"rows", "matrix"}, {1}, 0)), "global_average_pool dense dense");
  EXPECT_CONTAINS(kinds(gemm({"rows", "matrix", "c"}, {1}, 1)), "dense parameter add");
  EXPECT_CONTAINS(kinds(gemm({"rows", "matrix", "c"}, {}, 1)), " add dense");
}

TEST_F(OnnxGeneralTest, TheOnlyEntryMayBeRepeated) {
  const models::OnnxImport found =
      imported({node("ReduceMean", {"x", "one"}, "whole"),
                node("Gather", {"whole", "again"}, "end", {{"axis", std::int64_t{1}}})},
               {integers("one", {1}), integers("again", {0, 0, -1, 0, 0, 0})});
  EXPECT_CONTAINS(found.definition, "indices = [0, 0, 0, 0, 0, 0]");
}

// The sum of a remainder and the divisor would exceed 64 bits.
TEST_F(OnnxGeneralTest, ARemainderByALargeNumberIsExact) {
  const models::OnnxImport found =
      imported({node("Mod", {"rows", "large"}, "rest"),
                node("Cast", {"rest"}, "real", {{"to", std::int64_t{1}}}),
                node("Unsqueeze", {"real", "last"}, "column"), node("Add", {"x", "column"}, "end")},
               {integers("rows", {9, 0, 1, 2}), integers("last", {1}),
                integers("large", {std::numeric_limits<std::int64_t>::max()})});
  std::vector<float> values(4);
  for (const io::NamedArray& array : found.arrays)
    if (array.name.ends_with(".value"))
      std::memcpy(values.data(), array.data.data(), array.data.size());
  EXPECT_EQ(values, (std::vector<float>{9, 0, 1, 2}));
}

}  // namespace
