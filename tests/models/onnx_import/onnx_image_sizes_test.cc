// Networks from ONNX and the size of images: what a file means if it leaves height and width open.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "models/model_catalog.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;

io::OnnxNode open_node(const std::string& type, const std::vector<std::string>& inputs,
                       const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, to, inputs, {to}, std::move(attributes)};
}

class OnnxImageSizesTest : public testing::Test {
 protected:
  // The nodes go from the image "x" to "end", whose mean over height and width is classified.
  void save(const std::vector<io::OnnxDimension>& shape, const std::vector<io::OnnxNode>& nodes,
            const std::vector<io::NamedArray>& constants) {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = shape}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = nodes;
    model.nodes.push_back(open_node("GlobalAveragePool", {"end"}, "mean"));
    model.nodes.push_back(open_node("Flatten", {"mean"}, "flat"));
    model.nodes.push_back(
        open_node("Gemm", {"flat", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}));
    model.constants = constants;
    for (const auto& [name, value] : {std::pair("zero", 0), {"one", 1}, {"two", 2}, {"three", 3}})
      model.constants.push_back(integers(name, {value}));
    model.constants.push_back(floats("fc.weight", {3, 6}));
    io::save_onnx(model, path_);
  }
  // The layers before the mean, or the error, of a file whose height and width are open.
  std::string open_import(const std::vector<io::OnnxNode>& nodes,
                          const std::vector<io::NamedArray>& constants = {}) {
    save({"batch", 6, "height", "width"}, nodes, constants);
    try {
      return models::model_definition(path_);
    } catch (const engine::ModelError& error) {
      return error.what();
    }
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

// The height of "x", and a number computed from it.
std::vector<io::OnnxNode> height_nodes(const std::string& type, const std::string& number) {
  return {open_node("Shape", {"x"}, "shape"), open_node("Gather", {"shape", "two"}, "height"),
          open_node(type, {"height", number}, "end_row")};
}

// x[:, :, :h // 2], [:h - 1] and [:h + 1 - 1] of an unknown height h.
TEST_F(OnnxImageSizesTest, APartUpToAComputedEndIsRejected) {
  for (const char* type : {"Div", "Sub", "Mul"}) {
    std::vector<io::OnnxNode> nodes = height_nodes(type, "two");
    nodes.push_back(open_node("Slice", {"x", "zero", "end_row", "two"}, "end"));
    EXPECT_VALUES(open_import(nodes), "node 'end' (Slice): [batch, 6, ?, ?] height width");
  }
}

TEST_F(OnnxImageSizesTest, AllEntriesOfAnUnknownHeightAreNoPart) {
  const std::string found = open_import({open_node("Slice", {"x", "zero", "all", "two"}, "end")},
                                        {integers("all", {std::int64_t{1} << 62})});
  EXPECT_EQ(found.find("slice"), std::string::npos);
  EXPECT_CONTAINS(found, "kind = \"global_average_pool\"");
}

// [batch, 6, h / 2, 2 w]
TEST_F(OnnxImageSizesTest, AReshapeToComputedExtentsIsRejected) {
  std::vector<io::OnnxNode> nodes = height_nodes("Div", "two");
  nodes.push_back(open_node("Gather", {"shape", "three"}, "width"));
  nodes.push_back(open_node("Mul", {"width", "two"}, "columns"));
  nodes.push_back(
      open_node("Concat", {"first", "end_row", "columns"}, "to", {{"axis", std::int64_t{0}}}));
  nodes.push_back(open_node("Reshape", {"x", "to"}, "end"));
  EXPECT_VALUES(open_import(nodes, {integers("first", {0, 6})}),
                "node 'end' (Reshape): shape [batch, 6, ?, ?], height width");
}

// A choice by a comparison of two unknown extents.
TEST_F(OnnxImageSizesTest, AChoiceByAnUnknownExtentIsRejected) {
  for (const char* type : {"Equal", "Less", "Greater"})
    for (const char* other : {"two", "width"}) {
      std::vector<io::OnnxNode> nodes{open_node("Shape", {"x"}, "shape"),
                                      open_node("Gather", {"shape", "two"}, "height"),
                                      open_node("Gather", {"shape", "three"}, "width"),
                                      open_node(type, {"height", other}, "choice"),
                                      open_node("Not", {"choice"}, "no"),
                                      open_node("Where", {"no", "half", "whole"}, "factor"),
                                      open_node("Mul", {"x", "factor"}, "end")};
      EXPECT_VALUES(open_import(nodes, {scalar("half", 0.5), scalar("whole", 1)}),
                    "node 'factor' (Where): choice extent")
          << type << ' ' << other;
    }
}

// A file of images of 8 x 8, and data of 12 x 10: the shape of the logits, or the error.
class OnnxFixedSizesTest : public OnnxImageSizesTest {
 protected:
  std::string built(const std::vector<io::OnnxNode>& nodes,
                    const std::vector<io::NamedArray>& constants, const engine::Shape& sample) {
    save({"batch", 6, 8, 8}, nodes, constants);
    try {
      const engine::Graph graph = models::build_model(
          path_,
          {.sample_shape = sample, .classes = 3, .definition = models::model_definition(path_)});
      return graph.nodes()[static_cast<std::size_t>(graph.logits())].shape.to_string();
    } catch (const engine::ModelError& error) {
      return error.what();
    }
  }
  void expect_only_its_size(const std::vector<io::OnnxNode>& nodes,
                            const std::vector<io::NamedArray>& constants = {}) {
    EXPECT_EQ(built(nodes, constants, {8, 8, 6}), "[3]") << nodes[0].type;
    EXPECT_VALUES(built(nodes, constants, {12, 10, 6}), "8 x 8; 12 x 10; 12 x 10, dynamic axes")
        << nodes[0].type;
  }
  void expect_any_size(const std::vector<io::OnnxNode>& nodes,
                       const std::vector<io::NamedArray>& constants = {}) {
    EXPECT_EQ(built(nodes, constants, {8, 8, 6}), "[3]") << nodes[0].type;
    EXPECT_EQ(built(nodes, constants, {12, 10, 6}), "[3]") << nodes[0].type;
  }
};

TEST_F(OnnxFixedSizesTest, PlacesAndCountsOfPixelsFitTheFilesSizeAlone) {
  expect_only_its_size({open_node("Pad", {"x", "pads"}, "end", {{"mode", std::string("reflect")}})},
                       {integers("pads", {0, 0, 1, 1, 0, 0, 1, 1})});
  expect_only_its_size({open_node("Pad", {"x", "pads"}, "end", {{"mode", std::string("edge")}})},
                       {integers("pads", {0, 0, 1, 1, 0, 0, 1, 1})});
  expect_only_its_size({open_node("Pad", {"x", "pads"}, "end")},
                       {integers("pads", {0, 0, -1, 0, 0, 0, 0, -1})});
  for (const auto& [first, last] :
       {std::pair<std::int64_t, std::int64_t>{1, -1}, {-4, 1 << 30}, {0, 4}, {0, 8}})
    expect_only_its_size({open_node("Slice", {"x", "first", "last", "two"}, "end")},
                         {integers("first", {first}), integers("last", {last})});
  expect_only_its_size({open_node("Gather", {"x", "rows"}, "end", {{"axis", std::int64_t{2}}})},
                       {integers("rows", {0, 2, 4, 6})});
  // x * x.sum((2, 3)) / (h * w)
  expect_only_its_size({open_node("ReduceSum", {"x", "axes"}, "sum"),
                        open_node("Div", {"sum", "count"}, "mean_of_all"),
                        open_node("Mul", {"x", "mean_of_all"}, "end")},
                       {integers("axes", {2, 3}), scalar("count", 64)});
  expect_only_its_size({open_node("Mul", {"x", "places"}, "end")}, {floats("places", {8})});
  expect_only_its_size(
      {open_node("Shape", {"x"}, "others", {{"end", std::int64_t{2}}}),
       open_node("Concat", {"others", "pixels"}, "sizes", {{"axis", std::int64_t{0}}}),
       open_node("Resize", {"x", "", "", "sizes"}, "end")},
      {integers("pixels", {16, 16})});
  // The pool of the whole image at the file's size alone.
  expect_only_its_size({open_node("AveragePool", {"x"}, "end", {{"kernel_shape", Ints{8, 8}}})});
}

TEST_F(OnnxFixedSizesTest, LayersThatDoTheSameEverywhereFitEverySize) {
  expect_any_size({open_node("Relu", {"x"}, "end")});
  expect_any_size({open_node("Conv", {"x", "c.weight"}, "end", {{"pads", Ints{1, 1, 1, 1}}})},
                  {floats("c.weight", {6, 6, 3, 3})});
  expect_any_size({open_node("MaxPool", {"x"}, "end",
                             {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}})});
  expect_any_size({open_node("Resize", {"x", "", "scales"}, "end")}, {[] {
                    io::NamedArray scales = floats("scales", {4}, 1);
                    const std::vector<float> values{1, 1, 2, 2};
                    const auto bytes = std::as_bytes(std::span(values));
                    scales.data = {bytes.begin(), bytes.end()};
                    return scales;
                  }()});
  // Groups, as PyTorch's older exporter writes GroupNorm, and a shuffle of channels.
  io::NamedArray one = floats("onnx::one", {2}, 1), zero = floats("onnx::zero", {2});
  std::ranges::copy(one.data.begin(), one.data.begin() + 4, one.data.begin() + 4);
  std::ranges::copy(zero.data.begin(), zero.data.begin() + 4, zero.data.begin() + 4);
  expect_any_size({open_node("Reshape", {"x", "groups"}, "a"),
                   open_node("InstanceNormalization", {"a", "onnx::one", "onnx::zero"}, "b"),
                   open_node("Shape", {"x"}, "shape"), open_node("Reshape", {"b", "shape"}, "end")},
                  {integers("groups", {0, 2, -1}), one, zero});
  // A gate that means the image: [batch, 6, 1, 1].
  expect_any_size({open_node("GlobalAveragePool", {"x"}, "a"), open_node("Sigmoid", {"a"}, "b"),
                   open_node("Mul", {"x", "b"}, "end")});
}

TEST_F(OnnxFixedSizesTest, OtherChannelsAreRejectedWithBothNumbers) {
  const std::vector<io::OnnxNode> nodes{open_node("Relu", {"x"}, "end")};
  EXPECT_VALUES(built(nodes, {}, {8, 8, 3}), "6 channels; 3, [8, 8, 3]");
  save({"batch", 6, "height", "width"}, nodes, {});
  EXPECT_VALUES(test_support::error_of<engine::ModelError>([&] {
                  models::build_model(path_, {.sample_shape = {8, 8, 1}, .classes = 3});
                }),
                "6 channels; 1");
}

}  // namespace
