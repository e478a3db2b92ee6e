// Calls of PyTorch's functions in the metadata of nodes: they name parameters that the exporter has
// merged with equal ones or left out.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "models/onnx_import/onnx_import.h"
#include "models/onnx_origins/onnx_calls.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using base::ProtobufMessage;
using onnx_constants::floats, onnx_constants::metadata_entry;

struct CalledNode {
  std::string type;
  std::vector<std::string> inputs;
  std::string to, call;  // the arguments of a Linear layer after x; "": no metadata
  std::string module = "m";
};

ProtobufMessage called_message(const CalledNode& node) {
  ProtobufMessage message;
  for (const std::string& input : node.inputs) message.text(1, input);
  message.text(2, node.to).text(3, "/" + node.module + "/" + node.type).text(4, node.type);
  if (!node.call.empty())
    message.message(9, metadata_entry(io::kOnnxCall,
                                      "%linear : [num_users=1] = call_function[target=torch.ops." +
                                          node.call + ", kwargs = {})"));
  return message;
}

std::string linear_call(const std::string& weight, const std::string& bias) {
  return "aten.linear.default](args = (%x, %p_" + weight + ", %p_" + bias + ")";
}

class OnnxCallsTest : public testing::Test {
 protected:
  // The nodes go from rows "x", [batch, 4], to "y", [batch, 4].
  models::OnnxImport imported(const std::vector<CalledNode>& nodes,
                              const std::vector<io::NamedArray>& constants) {
    io::OnnxModel model;
    model.producer = "pytorch";
    model.inputs = {{.name = "x", .shape = {"batch", 4}}};
    model.outputs = {{.name = "y", .shape = {"batch", 4}}};
    model.constants = constants;
    io::save_onnx(model, path_);
    ProtobufMessage more;
    for (const CalledNode& node : nodes) more.message(1, called_message(node));
    std::string signature;
    for (const std::string& name : parameters_) {
      std::string placeholder = name;
      std::ranges::replace(placeholder, '.', '_');
      signature += "p_" + placeholder + ": PARAMETER target='" + name + "'\n";
    }
    if (!signature.empty()) more.message(16, metadata_entry(io::kOnnxSignature, signature));
    onnx_constants::add_to_graph(path_, more);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  static std::string names(const models::OnnxImport& found) {
    std::string text;
    for (const io::NamedArray& array : found.arrays) text += array.name + " ";
    return text;
  }
  static std::string notes(const models::OnnxImport& found) {
    std::string text;
    for (const std::string& note : found.notes) text += note + "\n";
    return text;
  }
  static std::size_t occurrences(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
  std::vector<std::string> parameters_;  // of the signature; none: the file has none
};

TEST_F(OnnxCallsTest, ABiasOfZerosIsTrained) {
  parameters_ = {"a.weight", "a.bias", "b.weight", "b.bias", "c.weight"};
  const models::OnnxImport found = imported(
      {{"MatMul", {"x", "val_1"}, "h", linear_call("a_weight", "a_bias")},
       {"MatMul", {"h", "val_2"}, "i", linear_call("b_weight", "b_bias")},
       {"Add", {"i", "b.bias"}, "j", linear_call("b_weight", "b_bias")},
       {"MatMul", {"j", "c.weight"}, "y", "aten.linear.default](args = (%j, %p_c_weight)"}},
      {floats("val_1", {4, 4}), floats("val_2", {4, 4}), floats("b.bias", {4}, 1),
       floats("c.weight", {4, 4})});
  EXPECT_EQ(names(found), "a.weight a.bias b.weight b.bias c.weight ");
  EXPECT_EQ(occurrences(found.definition, "bias = true"), 2U) << found.definition;
  EXPECT_EQ(found.arrays[1].data, std::vector<std::byte>(4 * sizeof(float)));
}

TEST_F(OnnxCallsTest, EqualMatricesOfTwoParametersAreSeparate) {
  parameters_ = {"a.weight", "a.bias", "b.weight", "b.bias"};
  const std::vector<io::NamedArray> constants{floats("val_1", {4, 4}), floats("a.bias", {4}, 1)};
  std::vector<CalledNode> nodes;
  for (const std::string layer : {"a", "b", "a"}) {
    const std::string from = nodes.empty() ? "x" : nodes.back().to,
                      number = std::to_string(nodes.size());
    nodes.push_back(
        {"MatMul", {from, "val_1"}, "p" + number, linear_call(layer + "_weight", layer + "_bias")});
    nodes.push_back({"Add", {"p" + number, "a.bias"}, "s" + number, nodes.back().call});
  }
  nodes.back().to = "y";
  const models::OnnxImport found = imported(nodes, constants);
  EXPECT_EQ(names(found), "a.weight a.bias b.weight b.bias ");
  EXPECT_EQ(occurrences(found.definition, "tied = \"a\""), 1U) << found.definition;
}

// A matrix may be any parameter, and a weight may be computed from others.
TEST_F(OnnxCallsTest, ParametersOfOtherFunctionsAreTheirArguments) {
  parameters_ = {"a.m", "b.m", "c.g", "c.bias"};
  const models::OnnxImport found =
      imported({{"MatMul", {"x", "a.m"}, "h", "aten.matmul.default](args = (%x, %p_a_m)", "a"},
                {"MatMul", {"h", "a.m"}, "i", "aten.matmul.default](args = (%h, %p_b_m)", "b"},
                {"Gemm",
                 {"i", "c.g", "c.bias"},
                 "y",
                 "aten.linear.default](args = (%i, %normed, %p_c_bias)",
                 "c"}},
               {floats("a.m", {4, 4}), floats("c.g", {4, 4}), floats("c.bias", {4})});
  EXPECT_EQ(names(found), "a.m.weight b.m.weight c.weight c.bias ");
  EXPECT_EQ(notes(found), "");
}

// Without a signature, the exporter writes an Identity for a parameter that is equal to another
// one; one that is shared keeps its name.
TEST_F(OnnxCallsTest, MatricesWithTwoNamesAreSeparate) {
  const models::OnnxImport found = imported({{"Identity", {"a.weight"}, "b.weight", ""},
                                             {"MatMul", {"x", "a.weight"}, "h", ""},
                                             {"MatMul", {"h", "b.weight"}, "i", ""},
                                             {"MatMul", {"i", "a.weight"}, "y", ""}},
                                            {floats("a.weight", {4, 4})});
  EXPECT_EQ(names(found), "a.weight b.weight ");
  EXPECT_EQ(occurrences(found.definition, "tied = \"a\""), 1U) << found.definition;
}

// The second use of module `a` is called a_1.
TEST_F(OnnxCallsTest, MatricesWithoutANameAreSeparatePerModule) {
  const models::OnnxImport found = imported({{"MatMul", {"x", "onnx::MatMul_7"}, "h", "", "a"},
                                             {"MatMul", {"h", "onnx::MatMul_7"}, "i", "", "b"},
                                             {"MatMul", {"i", "onnx::MatMul_7"}, "y", "", "a_1"}},
                                            {floats("onnx::MatMul_7", {4, 4})});
  EXPECT_EQ(names(found), "a.weight b.weight ");
  EXPECT_EQ(occurrences(found.definition, "tied = \"a\""), 1U) << found.definition;
  EXPECT_VALUES(notes(found), "trained apart b.weight; do_constant_folding=False");
}

TEST_F(OnnxCallsTest, SlopesWithoutANameAreTrainedPerModule) {
  const models::OnnxImport found = imported({{"PRelu", {"x", "onnx::PRelu_7"}, "h", "", "a"},
                                             {"PRelu", {"h", "onnx::PRelu_7"}, "i", "", "b"},
                                             {"PRelu", {"i", "onnx::PRelu_7"}, "y", "", "a_1"}},
                                            {floats("onnx::PRelu_7", {1, 1}, 0.25F)});
  EXPECT_EQ(names(found), "a.weight b.weight ");
}

TEST_F(OnnxCallsTest, ASharedMatrixWithAnotherBiasIsAnError) {
  const std::vector<CalledNode> nodes{{"MatMul", {"x", "a.weight"}, "h", ""},
                                      {"Add", {"h", "a.bias"}, "i", ""},
                                      {"MatMul", {"i", "a.weight"}, "j", ""},
                                      {"Add", {"j", "b.bias"}, "y", ""}};
  EXPECT_CONTAINS(test_support::error_or<engine::ModelError>(
                      [&] {
                        imported(nodes, {floats("a.weight", {4, 4}), floats("a.bias", {4}),
                                         floats("b.bias", {4}, 1)});
                      },
                      "no error"),
                  "share the weight 'a.weight'");
}

// A factor of 1 is gone with its node; a module without any parameter in the graph is unused.
TEST_F(OnnxCallsTest, ParametersThatTheFileDoesNotContainAreNamed) {
  parameters_ = {"a.weight", "temperature", "unused.weight", "unused.bias"};
  const models::OnnxImport found = imported(
      {{"MatMul", {"x", "a.weight"}, "y", "aten.linear.default](args = (%x, %p_a_weight)"}},
      {floats("a.weight", {4, 4})});
  EXPECT_VALUES(notes(found), "not trained, temperature; optimize=False");
}

// The bias of the sum is that of the norm; another rule has left it out.
TEST_F(OnnxCallsTest, AFoldedNormHasTheBiasOfItsLayer) {
  parameters_ = {"a.weight", "a.bias", "norm.weight", "norm.bias"};
  const models::OnnxImport found = imported(
      {{"Gemm",
        {"x", "a.weight"},
        "y",
        "aten._native_batch_norm_legit.default](args = (%a, %p_norm_weight, %p_norm_bias)"}},
      {floats("a.weight", {4, 4})});
  EXPECT_EQ(names(found), "a.weight a.bias ");
  EXPECT_EQ(notes(found).find("does not contain"), std::string::npos) << notes(found);
  EXPECT_VALUES(notes(found), "1 folded layers");
}

TEST_F(OnnxCallsTest, LayersLeaveNamesToTheParametersOfTheirModules) {
  parameters_ = {"m.weight", "m.in_proj_weight"};
  const models::OnnxImport slope =
      imported({{"PRelu", {"x", "val_1"}, "y", "aten.prelu.default](args = (%x, %p_m_weight)"}},
               {floats("val_1", {1, 1}, 2)});
  EXPECT_EQ(names(slope), "m.weight ");
  const models::OnnxImport attention = imported(
      {{"Relu", {"x"}, "h", ""},
       {"MatMul", {"h", "val_1"}, "y", "aten.linear.default](args = (%h, %p_m_in_proj_weight)"}},
      {floats("val_1", {4, 4})});
  EXPECT_EQ(names(attention), "m.weight ");
}

TEST(OnnxCall, IsReadFromItsText) {
  const models::OnnxCall call = models::read_onnx_call(
      "%c : [num_users=2] = call_function[target=torch.ops.aten.convolution.default](args = (%x, "
      "%p_w, None, [1, (2, 3)], f(%y, 4)), kwargs = {alpha: 2})");
  EXPECT_EQ(call.function, "aten.convolution.default");
  EXPECT_EQ(call.arguments,
            (std::vector<std::string>{"%x", "%p_w", "None", "[1, (2, 3)]", "f(%y, 4)"}));
  EXPECT_TRUE(call.is_weighted_sum());
  for (const char* text : {"", "%x", "call_function[target=torch.ops.", "](args = (%x, %y",
                           "](args = (call_function[target=torch.ops.aten.linear."})
    EXPECT_EQ(models::read_onnx_call(text).function, "") << text;
  EXPECT_EQ(models::read_onnx_call("call_function[target=torch.ops.a](args = (%x, [1").arguments,
            (std::vector<std::string>{"%x", "[1"}));
}

}  // namespace
