// Parameters that several nodes of a graph read: norms and convolutions that share all of theirs,
// and parameters that become layers of their own for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;

io::OnnxNode shared_node(const std::string& type, const std::vector<std::string>& inputs,
                         const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, to, inputs, {to}, std::move(attributes)};
}

std::size_t occurrences_in(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

class OnnxSharingTest : public testing::Test {
 protected:
  // The nodes go from the image "x", [batch, 4, 8, 8], to "end", whose mean is classified.
  models::OnnxImport imported(const std::vector<io::OnnxNode>& nodes,
                              const std::vector<io::NamedArray>& constants) {
    io::OnnxModel model;
    model.inputs = {{.name = "x", .shape = {"batch", 4, 8, 8}}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = nodes;
    model.nodes.push_back(shared_node("GlobalAveragePool", {"end"}, "mean"));
    model.nodes.push_back(shared_node("Flatten", {"mean"}, "flat"));
    model.nodes.push_back(
        shared_node("Gemm", {"flat", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}));
    model.constants = constants;
    model.constants.push_back(floats("fc.weight", {3, 4}));
    io::save_onnx(model, path_);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  static std::string names(const models::OnnxImport& found) {
    std::string text;
    for (const io::NamedArray& array : found.arrays) text += array.name + " ";
    return text;
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

std::vector<io::NamedArray> norm_constants(std::int64_t count) {
  return {floats("n.weight", {count}, 1), floats("n.bias", {count}, 2),
          floats("n.running_mean", {count}), floats("n.running_var", {count}, 1)};
}

// One module that is called twice.
TEST_F(OnnxSharingTest, NormsOfOneModuleShareItsParameters) {
  for (const auto& [type, count, inputs] :
       {std::tuple<std::string, std::int64_t, std::vector<std::string>>{
            "LayerNormalization", 8, {"n.weight", "n.bias"}},
        {"InstanceNormalization", 4, {"n.weight", "n.bias"}},
        {"BatchNormalization", 4, {"n.weight", "n.bias", "n.running_mean", "n.running_var"}}}) {
    std::vector<std::string> first = inputs, second = inputs;
    first.insert(first.begin(), "x");
    second.insert(second.begin(), "r");
    const models::OnnxImport found =
        imported({shared_node(type, first, "a"), shared_node("Relu", {"a"}, "r"),
                  shared_node(type, second, "end")},
                 norm_constants(count));
    EXPECT_EQ(occurrences_in(found.definition, "tied = \"n\""), 1U) << type;
    EXPECT_EQ(names(found), type == "BatchNormalization"
                                ? "n.weight n.bias n.running_mean n.running_var fc.weight "
                                : "n.weight n.bias fc.weight ");
  }
}

// BatchNorm2d(affine=False): the running statistics say that it is one module.
TEST_F(OnnxSharingTest, NormsWithoutParametersShareTheirStatistics) {
  std::vector<io::NamedArray> constants = norm_constants(4);
  constants[0] = floats("onnx::one", {4});
  constants[1] = floats("onnx::zero", {4});
  const std::vector<float> ones(4, 1), zeros(4, 0);
  std::ranges::copy(std::as_bytes(std::span(ones)), constants[0].data.begin());
  std::ranges::copy(std::as_bytes(std::span(zeros)), constants[1].data.begin());
  constants.push_back(floats("m.running_mean", {4}, 5));
  constants.push_back(floats("m.running_var", {4}, 5));
  const auto norm = [](const std::string& from, const std::string& module, const std::string& to) {
    return shared_node(
        "BatchNormalization",
        {from, "onnx::one", "onnx::zero", module + ".running_mean", module + ".running_var"}, to);
  };
  const models::OnnxImport found =
      imported({norm("x", "n", "a"), norm("a", "m", "b"), norm("b", "n", "end")}, constants);
  EXPECT_EQ(names(found), "n.running_mean n.running_var m.running_mean m.running_var fc.weight ");
  EXPECT_EQ(occurrences_in(found.definition, "tied = \"n\""), 1U);
  EXPECT_EQ(occurrences_in(found.definition, "affine = false"), 3U);
}

// GroupNorm as PyTorch's older exporter writes it.
TEST_F(OnnxSharingTest, NormsOfGroupsOfOneModuleShareItsParameters) {
  const auto norm = [](const std::string& from, const std::string& to) {
    return std::vector<io::OnnxNode>{
        shared_node("Reshape", {from, "groups"}, to + "1"),
        shared_node("InstanceNormalization", {to + "1", "onnx::one", "onnx::zero"}, to + "2"),
        shared_node("Shape", {from}, to + "3"),
        shared_node("Reshape", {to + "2", to + "3"}, to + "4"),
        shared_node("Mul", {to + "4", "n.weight"}, to + "5"),
        shared_node("Add", {to + "5", "n.bias"}, to)};
  };
  std::vector<io::OnnxNode> nodes = norm("x", "a");
  for (const io::OnnxNode& node : norm("a", "end")) nodes.push_back(node);
  io::NamedArray one = floats("onnx::one", {2}, 1), zero = floats("onnx::zero", {2});
  const std::vector<float> ones(2, 1), zeros(2, 0);
  std::ranges::copy(std::as_bytes(std::span(ones)), one.data.begin());
  std::ranges::copy(std::as_bytes(std::span(zeros)), zero.data.begin());
  const models::OnnxImport found =
      imported(nodes, {one, zero, integers("groups", {0, 2, -1}), floats("n.weight", {4, 1, 1}, 1),
                       floats("n.bias", {4, 1, 1}, 2)});
  EXPECT_EQ(names(found), "n.weight n.bias fc.weight ");
  EXPECT_EQ(occurrences_in(found.definition, "tied = \"n\""), 1U);
}

// An autoencoder whose second matrix is the transpose of the first one.
TEST_F(OnnxSharingTest, AWeightAndItsTransposeAreOneParameter) {
  for (const std::int64_t width : {4, 7}) {
    const models::OnnxImport found = imported(
        {shared_node("Transpose", {"x"}, "last", {{"perm", Ints{0, 2, 3, 1}}}),
         shared_node("Transpose", {"code.weight"}, "turned", {{"perm", Ints{1, 0}}}),
         shared_node("MatMul", {"last", "turned"}, "code"), shared_node("Relu", {"code"}, "active"),
         shared_node("MatMul", {"active", "code.weight"}, "decoded"),
         shared_node("Transpose", {"decoded"}, "end", {{"perm", Ints{0, 3, 1, 2}}})},
        {floats("code.weight", {width, 4})});
    EXPECT_EQ(occurrences_in(found.definition, "kind = \"matmul\""), 2U);
    EXPECT_EQ(names(found), "code.weight fc.weight ");
  }
}

// F.conv2d(x, w1, b) + F.conv2d(x, w2, b)
TEST_F(OnnxSharingTest, ABiasOfSeveralConvolutionsIsOneParameter) {
  const models::OnnxImport found = imported(
      {shared_node("Conv", {"x", "c.weight", "c.bias"}, "a"),
       shared_node("Conv", {"x", "d.weight", "c.bias"}, "b"),
       shared_node("Conv", {"x", "f.weight", "c.bias"}, "f"),
       shared_node("Conv", {"x", "e.weight", "e.bias"}, "e"), shared_node("Add", {"a", "b"}, "s"),
       shared_node("Add", {"s", "f"}, "t"), shared_node("Add", {"t", "e"}, "end")},
      {floats("c.weight", {4, 4, 3, 3}), floats("d.weight", {4, 4, 3, 3}, 1),
       floats("f.weight", {4, 4, 3, 3}, 3), floats("e.weight", {4, 4, 3, 3}, 2),
       floats("c.bias", {4}), floats("e.bias", {4})});
  EXPECT_EQ(names(found), "c.weight c.bias.weight d.weight f.weight e.weight e.bias fc.weight ");
  EXPECT_EQ(occurrences_in(found.definition, "kind = \"parameter\""), 1U);
  EXPECT_EQ(occurrences_in(found.definition, "kind = \"add\""), 6U);
}

TEST_F(OnnxSharingTest, AWeightOfNormsWithOtherBiasesIsOneParameter) {
  const models::OnnxImport found =
      imported({shared_node("LayerNormalization", {"x", "n.weight", "n.bias"}, "a"),
                shared_node("LayerNormalization", {"a", "n.weight", "m.bias"}, "end")},
               {floats("n.weight", {8}), floats("n.bias", {8}), floats("m.bias", {8}, 1)});
  EXPECT_EQ(occurrences_in(names(found), "n.weight "), 1U);
  EXPECT_EQ(occurrences_in(found.definition, "kind = \"layer_norm\""), 2U);
  EXPECT_EQ(occurrences_in(found.definition, "affine = false"), 2U);
}

// A norm's weight that another node multiplies by as well.
TEST_F(OnnxSharingTest, AWeightThatAnotherNodeReadsIsOneParameter) {
  const models::OnnxImport found =
      imported({shared_node("LayerNormalization", {"x", "n.weight", "n.bias"}, "a"),
                shared_node("Mul", {"a", "n.weight"}, "end")},
               {floats("n.weight", {8}), floats("n.bias", {8})});
  EXPECT_EQ(occurrences_in(names(found), "n.weight "), 1U);
  EXPECT_EQ(occurrences_in(found.definition, "kind = \"parameter\""), 2U);  // and the bias
  EXPECT_EQ(occurrences_in(found.definition, "kind = \"multiply\""), 2U);
}

TEST_F(OnnxSharingTest, NormsThatShareOnlySomeParametersAreRejectedIfNoLayerExpressesIt) {
  std::vector<io::NamedArray> constants = norm_constants(4);
  constants.push_back(floats("m.bias", {4}, 7));
  std::string fault;
  try {
    imported({shared_node("BatchNormalization",
                          {"x", "n.weight", "n.bias", "n.running_mean", "n.running_var"}, "a"),
              shared_node("BatchNormalization",
                          {"a", "n.weight", "m.bias", "n.running_mean", "n.running_var"}, "end")},
             constants);
  } catch (const engine::ModelError& error) {
    fault = error.what();
  }
  EXPECT_VALUES(fault, "share 'n.weight', all none");
}

// torch.onnx.export(dynamo=True, optimize=False) of Conv2d(bias=False)
TEST_F(OnnxSharingTest, ComputedZerosAreNoBias) {
  for (const char* type : {"Conv", "ConvTranspose"}) {
    const models::OnnxImport found =
        imported({shared_node("Shape", {"c.weight"}, "rows",
                              {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}}),
                  shared_node("Expand", {"rows", "one"}, "shape"),
                  shared_node("CastLike", {"zero", "x"}, "like"),
                  shared_node("Expand", {"like", "shape"}, "bias"),
                  shared_node(type, {"x", "c.weight", "bias"}, "end")},
                 {floats("c.weight", {4, 4, 3, 3}), integers("one", {1}), scalar("zero", 0)});
    EXPECT_CONTAINS(found.definition, "bias = false");
    EXPECT_EQ(names(found), "c.weight fc.weight ");
  }
}

}  // namespace
