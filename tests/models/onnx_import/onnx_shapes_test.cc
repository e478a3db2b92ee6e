// Arithmetic on shapes and constants while a file is read, and the parts that it names.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;
using Names = std::vector<std::string>;

io::OnnxNode shape_step(const std::string& type, const Names& inputs, const std::string& output,
                        std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, output, inputs, {output}, std::move(attributes)};
}

class OnnxShapesTest : public testing::Test {
 protected:
  // The nodes go from the image "x", [samples, 6, 4, 5], to "end", whose numbers a matrix of
  // `columns` columns reads.
  std::string definition(const std::vector<io::OnnxNode>& nodes,
                         const std::vector<io::NamedArray>& constants, std::int64_t columns,
                         const io::OnnxDimension& samples = "batch") {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = {samples, 6, 4, 5}}};
    model.outputs = {{.name = "y", .shape = {samples, 3}}};
    model.nodes = nodes;
    model.nodes.push_back(shape_step("Flatten", {"end"}, "row"));
    model.nodes.push_back(
        shape_step("Gemm", {"row", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}));
    model.constants = constants;
    model.constants.push_back(floats("fc.weight", {3, columns}));
    io::save_onnx(model, path_);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kSkip).definition;
  }
  std::string fault(const std::vector<io::OnnxNode>& nodes,
                    const std::vector<io::NamedArray>& constants,
                    const io::OnnxDimension& samples = "batch") {
    try {
      definition(nodes, constants, 1, samples);
    } catch (const engine::ModelError& error) {
      return error.what();
    }
    return "";
  }
  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

// PyTorch's flip: from the last entry to one before all.
TEST_F(OnnxShapesTest, PartsInDescendingOrderAreGathered) {
  const std::vector<io::NamedArray> constants{
      integers("last", {-1}), integers("before", {std::numeric_limits<std::int64_t>::min()}),
      integers("axis", {3}), integers("down", {-1}), integers("two", {-2})};
  EXPECT_CONTAINS(definition({shape_step("Slice", {"x", "last", "before", "axis", "down"}, "end")},
                             constants, 6 * 4 * 5),
                  "kind = \"gather\"\nname = \"slice_0\"\ninputs = [\"input\"]\naxis = 1\n"
                  "indices = [4, 3, 2, 1, 0]\n");
  EXPECT_CONTAINS(definition({shape_step("Slice", {"x", "last", "before", "axis", "two"}, "end")},
                             constants, 6 * 4 * 3),
                  "indices = [4, 2, 0]\n");
}

// x[:x.shape[0]], where the file has the number of samples.
TEST_F(OnnxShapesTest, PartsOfTheSamplesHaveAllOfThem) {
  const std::vector<io::OnnxNode> nodes{
      shape_step("Slice", {"x", "zero", "end_of_part", "zero"}, "all"),
      shape_step("Relu", {"all"}, "end")};
  const std::vector<io::NamedArray> all{integers("zero", {0}), integers("end_of_part", {2})};
  EXPECT_EQ(definition(nodes, all, 6 * 4 * 5, 2).find("slice"), std::string::npos);
  const std::vector<io::NamedArray> one{integers("zero", {0}), integers("end_of_part", {1})};
  for (const io::OnnxDimension& samples : {io::OnnxDimension{2}, io::OnnxDimension{"batch"}})
    EXPECT_VALUES(fault(nodes, one, samples), "(Slice): part 0 [batch, 6, 4, 5], all");
}

// x[:, :, : x.numel() // x.shape[0] // 40], and numbers from 0 in steps of a half.
TEST_F(OnnxShapesTest, ProductsOfExtentsAndRangesOfFloatsAreComputed) {
  const std::vector<io::NamedArray> constants{
      integers("zero", {0}), integers("forty", {40}), integers("rows", {2}),    scalar("from", 0),
      scalar("to", 2.5F),    scalar("half", 0.5F),    integers("keeps", {1, 5})};
  const std::string found = definition(
      {shape_step("Shape", {"x"}, "shape"),
       shape_step("ReduceProd", {"shape"}, "count", {{"keepdims", std::int64_t{1}}}),
       shape_step("Gather", {"shape", "zero"}, "samples", {{"axis", std::int64_t{0}}}),
       shape_step("Div", {"count", "samples"}, "each"),
       shape_step("Div", {"each", "forty"}, "part"), shape_step("Max", {"part"}, "largest"),
       shape_step("Slice", {"x", "zero", "largest", "rows"}, "cut"),
       shape_step("Range", {"from", "to", "half"}, "places"),
       shape_step("Reshape", {"places", "keeps"}, "columns"),
       shape_step("Mul", {"cut", "columns"}, "end")},
      constants, 6 * 3 * 5);
  EXPECT_CONTAINS(found, "first = 0\ncount = 3\naxis = 0\n");
  EXPECT_CONTAINS(found, "kind = \"constant\"");
}

// The product of the multiple and the number exceeds 64 bits.
TEST_F(OnnxShapesTest, AMultipleOfTheSamplesByALargeNumberIsUnknown) {
  const std::vector<io::OnnxNode> nodes{
      shape_step("Shape", {"x"}, "shape"),
      shape_step("Gather", {"shape", "zero"}, "samples", {{"axis", std::int64_t{0}}}),
      shape_step("Mul", {"samples", "four"}, "all"),
      shape_step("Mul", {"all", "large"}, "product"),
      shape_step("Concat", {"product", "rest"}, "wanted", {{"axis", std::int64_t{0}}}),
      shape_step("Reshape", {"x", "wanted"}, "end")};
  EXPECT_CONTAINS(fault(nodes, {integers("zero", {0}), integers("four", {4}),
                                integers("large", {-4611686018427387903}), integers("rest", {60})}),
                  "it reads [2 batch, 60]");
}

// x[:, [5, 0]], as PyTorch's newer exporter writes it, and entries of two dimensions at once.
TEST_F(OnnxShapesTest, RowsOfIndicesNameEntries) {
  const auto indices = [](Ints values, Ints shape) {
    io::NamedArray array = integers("indices", values);
    array.shape = std::move(shape);
    return array;
  };
  const auto turned = [](const std::string& from, const std::string& to, const Ints& order) {
    return shape_step("Transpose", {from}, to, {{"perm", order}});
  };
  EXPECT_CONTAINS(definition({turned("x", "first", {1, 0, 2, 3}),
                              shape_step("GatherND", {"first", "indices"}, "chosen"),
                              turned("chosen", "end", {1, 0, 2, 3})},
                             {indices({5, 0}, {2, 1})}, 2 * 4 * 5),
                  "axis = 2\nindices = [5, 0]\n");
  EXPECT_CONTAINS(definition({turned("x", "first", {2, 3, 0, 1}),
                              shape_step("GatherND", {"first", "indices"}, "chosen"),
                              turned("chosen", "end", {1, 0, 2})},
                             {indices({3, 4, 0, -1, 1, 1}, {3, 2})}, 3 * 6),
                  "indices = [19, 4, 6]\n");
  EXPECT_CONTAINS(fault({turned("x", "first", {1, 0, 2, 3}),
                         shape_step("GatherND", {"first", "indices"}, "end")},
                        {indices({6}, {1, 1})}),
                  "(GatherND): entry 6 of 6");
}

// torch.zeros(x.shape[0], 1, 5), which is the same for all samples.
TEST_F(OnnxShapesTest, ComputedNumbersAreJoinedForEachSample) {
  const std::string found =
      definition({shape_step("Shape", {"x"}, "shape"),
                  shape_step("Gather", {"shape", "zero"}, "samples", {{"axis", std::int64_t{0}}}),
                  shape_step("Concat", {"samples", "rest"}, "wanted", {{"axis", std::int64_t{0}}}),
                  shape_step("ConstantOfShape", {"wanted"}, "zeros"),
                  shape_step("Concat", {"x", "zeros"}, "end", {{"axis", std::int64_t{2}}})},
                 {integers("zero", {0}), integers("rest", {6, 1, 5})}, 6 * 5 * 5);
  EXPECT_CONTAINS(found, "kind = \"concat\"");
}

}  // namespace
