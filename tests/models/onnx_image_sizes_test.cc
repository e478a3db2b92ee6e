// Networks from ONNX and the size of images: what a file means if it leaves height and width open.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "io/interchange/onnx_file.h"
#include "models/model_catalog.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_constants.h"
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
    EXPECT_CONTAINS(open_import(nodes),
                    "node 'end' (Slice): a part of [batch, 6, ?, ?] that ends at a place computed "
                    "from its height or width, which the file leaves open; export the network with "
                    "a fixed height and width");
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
  EXPECT_CONTAINS(
      open_import(nodes, {integers("first", {0, 6})}),
      "node 'end' (Reshape): it changes the shape of [batch, 6, ?, ?], whose height and "
      "width the file does not have");
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
      EXPECT_CONTAINS(open_import(nodes, {scalar("half", 0.5), scalar("whole", 1)}),
                      "node 'factor' (Where): a choice by an extent that the file leaves open")
          << type << ' ' << other;
    }
}

}  // namespace
