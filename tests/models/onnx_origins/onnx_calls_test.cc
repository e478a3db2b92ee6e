// Calls of PyTorch's functions in the metadata of nodes: they name parameters that the exporter has
// merged with equal ones or left out.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "io/interchange/array_files.h"
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
    const auto add_line = [&](const std::string& name, const std::string& kind) {
      std::string placeholder = name;
      std::ranges::replace(placeholder, '.', '_');
      signature +=
          (kind == "BUFFER" ? "b_" : "p_") + placeholder + ": " + kind + " target='" + name + "'\n";
    };
    for (const std::string& name : parameters_) add_line(name, "PARAMETER");
    for (const std::string& name : buffers_) add_line(name, "BUFFER");
    if (!signature.empty()) more.message(16, metadata_entry(io::kOnnxSignature, signature));
    for (const auto& [name, sources] : folded_) {
      ProtobufMessage value;
      value.text(1, name).message(4, metadata_entry(io::kOnnxFoldedFrom, sources));
      more.message(13, std::move(value));
    }
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
  std::vector<std::string> buffers_;
  std::vector<std::pair<std::string, std::string>> folded_;  // values, and what they are from
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

// Weights that `forward` computes from one parameter: by a mask, a function, or for the last layer.
TEST_F(OnnxCallsTest, WeightsThatTheExporterHasComputedAreNamed) {
  parameters_ = {"w", "v", "m.weight", "head"};
  folded_ = {{"mul", "['mask', 'w']"},
             {"val_9", "['softplus_2', 'softplus', 'tmp', 'v']"},
             {"div", "['m.weight', 'mean', 'sub', 'val_3']"},
             {"div_1", "['head', 'linalg_vector_norm_1', 'val_2']"}};
  const models::OnnxImport found =
      imported({{"Gemm", {"x", "mul"}, "a", "aten.linear.default](args = (%x, %mul)", "a"},
                {"MatMul", {"a", "val_9"}, "b", "aten.linear.default](args = (%a, %softplus)", "b"},
                {"Gemm", {"b", "div"}, "c", "aten.linear.default](args = (%b, %div)", "m"},
                {"Gemm", {"c", "div_1"}, "y", "aten.linear.default](args = (%c, %div_1)", "c"}},
               {floats("mul", {4, 4}), floats("val_9", {4, 4}, 1), floats("div", {4, 4}, 2),
                floats("div_1", {4, 4}, 3)});
  EXPECT_EQ(names(found), "a.weight b.weight m.div.weight c.weight ");
  EXPECT_EQ(found.heads.size(), 0U);
  EXPECT_VALUES(notes(found),
                "a.weight w b.weight v m.div.weight m.weight c.weight head optimize=False");
}

// The bias of a module does not name a weight that is computed from the module's.
TEST_F(OnnxCallsTest, AComputedWeightWithABiasIsNamed) {
  parameters_ = {"m.weight", "m.bias"};
  folded_ = {{"val_9", "['m.weight', 'mask', 'mul']"}};
  const std::string call = "aten.linear.default](args = (%x, %mul, %p_m_bias)";
  const models::OnnxImport found = imported(
      {{"MatMul", {"x", "val_9"}, "h", call, "m"}, {"Add", {"h", "m.bias"}, "y", call, "m"}},
      {floats("val_9", {4, 4}), floats("m.bias", {4}, 1)});
  EXPECT_EQ(names(found), "m.val_9.weight m.val_9.bias ");
  EXPECT_VALUES(notes(found), "m.val_9.weight m.weight optimize=False");
}

// A Linear layer of a buffer: the exporter has computed the product, and the Add is left.
TEST_F(OnnxCallsTest, AComputedProductIsNotTheBiasThatIsAdded) {
  parameters_ = {"m.weight", "m.bias"};
  buffers_ = {"table"};
  folded_ = {{"val_1", "['m.weight', 'table', 'val_0']"}};
  const models::OnnxImport found =
      imported({{"Add",
                 {"val_1", "m.bias"},
                 "h",
                 "aten.linear.default](args = (%b_table, %p_m_weight, %p_m_bias)"},
                {"Add", {"x", "h"}, "y", "aten.add.Tensor](args = (%x, %h)"}},
               {floats("val_1", {1, 4}), floats("m.bias", {4}, 9)});
  EXPECT_EQ(names(found), "m.bias.weight val_1.weight ");
  EXPECT_VALUES(notes(found), "computed val_1.weight m.weight optimize=False");
}

// A transpose or a view alone is trained as the parameter is.
TEST_F(OnnxCallsTest, OtherOrdersOfAParameterAreNoComputedWeights) {
  parameters_ = {"a.weight", "w", "v"};
  folded_ = {
      {"val_3", "['a.weight']"}, {"t", "['w']"}, {"view_1", "['permute', 'v', 'val_1', 'val_2']"}};
  const models::OnnxImport found =
      imported({{"MatMul", {"x", "val_3"}, "h", "aten.linear.default](args = (%x, %p_a_weight)"},
                {"MatMul", {"h", "t"}, "i", "aten.matmul.default](args = (%h, %t)"},
                {"Gemm", {"i", "view_1"}, "y", "aten.linear.default](args = (%i, %view_1)"}},
               {floats("val_3", {4, 4}), floats("t", {4, 4}, 1), floats("view_1", {4, 4}, 2)});
  EXPECT_EQ(notes(found), "");
  EXPECT_EQ(found.heads.size(), 1U);
}

// `y` is the transpose of `x`, with its name in the file.
io::NamedArray transposed_copy(io::NamedArray matrix, const std::string& name) {
  matrix = io::transposed(std::move(matrix));
  matrix.name = name;
  return matrix;
}

// The exporter stores a matrix that PyTorch reads as it is and transposed twice.
TEST_F(OnnxCallsTest, AParameterAndItsTransposeAreOne) {
  parameters_ = {"a.weight", "a.bias", "c.weight", "b"};
  folded_ = {{"t", "['a.weight']"}, {"val_7", "['a.weight', 't']"}};
  const io::NamedArray weight = floats("a.weight", {4, 4});
  const models::OnnxImport found = imported(
      {{"Gemm", {"x", "a.weight", "a.bias"}, "h", linear_call("a_weight", "a_bias"), "a"},
       {"Gemm", {"h", "t", "b"}, "i", "aten.linear.default](args = (%h, %t, %p_b)", ""},
       {"Gemm", {"i", "c.weight"}, "y", "aten.linear.default](args = (%i, %p_c_weight)", "c"}},
      {weight, floats("a.bias", {4}, 1), floats("b", {4}, 2), floats("c.weight", {4, 4}, 3),
       transposed_copy(weight, "t")});
  EXPECT_EQ(occurrences(names(found), "a.weight "), 1U) << names(found);
  EXPECT_EQ(occurrences(found.definition, "kind = \"matmul\""), 2U) << found.definition;
  EXPECT_EQ(notes(found), "");
  // A bias of zeros, which the exporter leaves out.
  const models::OnnxImport zero = imported(
      {{"Gemm", {"x", "a.weight", "a.bias"}, "h", linear_call("a_weight", "a_bias"), "a"},
       {"Gemm", {"h", "t"}, "i", "aten.linear.default](args = (%h, %t, %p_b)", ""},
       {"Gemm", {"i", "c.weight"}, "y", "aten.linear.default](args = (%i, %p_c_weight)", "c"}},
      {weight, floats("a.bias", {4}, 1), floats("c.weight", {4, 4}, 3),
       transposed_copy(weight, "t")});
  EXPECT_CONTAINS(names(zero), "b.weight ");
  EXPECT_EQ(notes(zero), "");
  // Without a copy in the order of the module.
  const models::OnnxImport turned = imported(
      {{"MatMul", {"x", "t"}, "h", "aten.linear.default](args = (%x, %p_a_weight)", "a"},
       {"MatMul", {"h", "val_7"}, "i", "aten.linear.default](args = (%h, %t, %p_b)", ""},
       {"Add", {"i", "b"}, "j", "aten.linear.default](args = (%h, %t, %p_b)", ""},
       {"Gemm", {"j", "c.weight"}, "y", "aten.linear.default](args = (%i, %p_c_weight)", "c"}},
      {transposed_copy(weight, "t"), transposed_copy(transposed_copy(weight, ""), "val_7"),
       floats("b", {4}), floats("c.weight", {4, 4}, 3)});
  EXPECT_EQ(names(turned), "a.weight b.weight c.weight ");
}

TEST_F(OnnxCallsTest, APartOfAParameterThatIsReadAsAWholeIsNamed) {
  parameters_ = {"w", "c.weight"};
  folded_ = {{"slice_1", "['w', 'val_1']"}};
  const models::OnnxImport found = imported(
      {{"MatMul", {"x", "w"}, "h", "aten.matmul.default](args = (%x, %p_w)", "a"},
       {"MatMul", {"h", "slice_1"}, "i", "aten.matmul.default](args = (%h, %slice_1)", "b"},
       {"Gemm", {"i", "c.weight"}, "y", "aten.linear.default](args = (%i, %p_c_weight)", "c"}},
      {floats("w", {4, 4}), floats("slice_1", {4, 3}), floats("c.weight", {3, 4}, 3)});
  EXPECT_VALUES(notes(found), "computed slice_1.weight w optimize=False");
}

// The file does not contain the parameter itself.
TEST_F(OnnxCallsTest, PartsOfAParameterThatOverlapAreNamed) {
  parameters_ = {"w", "b"};
  folded_ = {{"slice_1", "['val_1', 'w']"},
             {"slice_2", "['b', 'val_2']"},
             {"slice_3", "['val_3', 'w']"},
             {"slice_4", "['b', 'val_4']"}};
  const std::string sum = "aten.linear.default](args = (%x, %slice_";
  const std::vector<CalledNode> nodes{
      {"Gemm", {"x", "slice_1", "slice_2"}, "h", sum + "1, %slice_2)", "a"},
      {"Gemm", {"h", "slice_3", "slice_4"}, "y", sum + "3, %slice_4)", "b"}};
  const io::NamedArray first = floats("slice_1", {4, 4}), bias = floats("slice_2", {4}, 1);
  io::NamedArray second = floats("slice_3", {4, 4}, 100), other = floats("slice_4", {4}, 100);
  EXPECT_EQ(notes(imported(nodes, {first, bias, second, other})).find("computed"),
            std::string::npos);
  const auto half = [](const io::NamedArray& array) {
    return static_cast<std::ptrdiff_t>(array.data.size() / 2);
  };
  std::copy(bias.data.begin() + half(bias), bias.data.end(), other.data.begin());
  EXPECT_VALUES(notes(imported(nodes, {first, bias, second, other})),
                "computed a.bias b b.bias b optimize=False");
  std::copy(first.data.begin() + half(first), first.data.end(), second.data.begin());
  EXPECT_VALUES(notes(imported(nodes, {first, bias, second, other})),
                "computed a.weight w a.bias b b.weight w b.bias b optimize=False");
  EXPECT_VALUES(notes(imported(nodes, {transposed_copy(first, "slice_1"), bias,
                                       transposed_copy(second, "slice_3"), other})),
                "computed a.weight w a.bias b b.weight w b.bias b optimize=False");
}

// Equal numbers.
io::NamedArray equal_floats(const std::string& name, const onnx_constants::Ints& shape,
                            float value) {
  io::NamedArray all = floats(name, shape);
  const io::NamedArray one = onnx_constants::scalar("", value);
  for (std::size_t i = 0; i < all.data.size(); i += one.data.size())
    std::ranges::copy(one.data, all.data.begin() + static_cast<std::ptrdiff_t>(i));
  return all;
}

// As constructed, all have the weight 1, which is one tensor in the file.
TEST_F(OnnxCallsTest, EqualRmsNormsAreSeparate) {
  parameters_ = {"n1.weight", "n2.weight"};
  const std::string norm = "aten.rms_norm.default](args = (%x, [4]";
  const auto node = [&](const std::string& from, const std::string& to, const std::string& call) {
    return CalledNode{"RMSNormalization", {from, "n1.weight"}, to, norm + call, to};
  };
  const models::OnnxImport found =
      imported({node("x", "n1", ", %p_n1_weight, 1e-05)"), node("n1", "n2", ", %p_n2_weight)"),
                node("n2", "again", ", %p_n1_weight, 1e-05)"),
                node("again", "plain", ", None, 1e-05)"), node("plain", "y", ")")},
               {equal_floats("n1.weight", {4}, 1)});
  EXPECT_EQ(names(found), "n1.weight n2.weight ");
  EXPECT_EQ(occurrences(found.definition, "kind = \"rms_norm\""), 3U) << found.definition;
  EXPECT_EQ(occurrences(found.definition, "tied = \"n1\""), 1U) << found.definition;
}

TEST_F(OnnxCallsTest, EqualArgumentsOfAProductAndSumAreSeparate) {
  parameters_ = {"a.weight", "a.bias", "b.weight", "b.bias"};
  const std::string sum = "aten.addmm.default](args = (%p_";
  const models::OnnxImport found =
      imported({{"Gemm", {"x", "a.weight", "a.bias"}, "h", sum + "a_bias, %x, %p_a_weight)", "a"},
                {"Gemm", {"h", "a.weight", "a.bias"}, "y", sum + "b_bias, %h, %p_b_weight)", "b"}},
               {floats("a.weight", {4, 4}), floats("a.bias", {4}, 1)});
  EXPECT_EQ(names(found), "a.weight a.bias b.weight b.bias ");
}

// A norm whose weight and bias are 0 reads one tensor for both.
TEST_F(OnnxCallsTest, ANormOfZerosHasAWeightAndABias) {
  parameters_ = {"n.weight", "n.bias"};
  const models::OnnxImport found =
      imported({{"LayerNormalization",
                 {"x", "n.weight", "n.weight"},
                 "y",
                 "aten.layer_norm.default](args = (%x, [4], %p_n_weight, %p_n_bias, 1e-05, False)",
                 "n"}},
               {equal_floats("n.weight", {4}, 0)});
  EXPECT_EQ(names(found), "n.weight n.bias ");
  EXPECT_EQ(occurrences(found.definition, "affine = false"), 0U) << found.definition;
  EXPECT_EQ(notes(found).find("n.bias"), std::string::npos) << notes(found);
}

// The norm has no parameters, but its input is one.
TEST_F(OnnxCallsTest, AParameterThatIsNormedIsTrained) {
  parameters_ = {"queries", "n.weight", "n.bias"};
  const std::string norm = "aten.layer_norm.default](args = (";
  const models::OnnxImport found =
      imported({{"LayerNormalization",
                 {"x", "n.weight", "n.bias"},
                 "h",
                 norm + "%x, [4], %p_n_weight, %p_n_bias, 1e-05, False)",
                 "n"},
                {"LayerNormalization",
                 {"queries", "n.weight"},
                 "q",
                 norm + "%p_queries, [4], None, None, 1e-05)",
                 ""},
                {"Add", {"h", "q"}, "y", "aten.add.Tensor](args = (%h, %q)", ""}},
               {equal_floats("queries", {1, 4}, 0), equal_floats("n.weight", {4}, 1),
                floats("n.bias", {4}, 2)});
  EXPECT_EQ(names(found), "n.weight n.bias queries.weight ");
  EXPECT_EQ(occurrences(found.definition, "affine = false"), 1U) << found.definition;
}

// Running statistics at the start are equal to a weight and a bias at the start.
TEST_F(OnnxCallsTest, StatisticsThatAreEqualToParametersAreNotTrained) {
  parameters_ = {"n.weight", "n.bias"};
  buffers_ = {"n.running_mean", "n.running_var", "o.running_mean", "o.running_var"};
  const std::vector<std::string> read{"n.weight", "n.bias", "n.bias", "n.weight"};
  const auto node = [&](const std::string& from, const std::string& to, const std::string& module,
                        const std::string& weights) {
    std::vector<std::string> inputs{from};
    inputs.insert(inputs.end(), read.begin(), read.end());
    return CalledNode{"BatchNormalization", inputs, to,
                      "aten._native_batch_norm_legit_no_training.default](args = (%" + from + ", " +
                          weights + ", %b_" + module + "_running_mean, %b_" + module +
                          "_running_var, 0.1, 1e-05)",
                      "norms." + module};
  };
  const models::OnnxImport found =
      imported({node("x", "h", "n", "%p_n_weight, %p_n_bias"), node("h", "y", "o", "None, None")},
               {equal_floats("n.weight", {4}, 1), equal_floats("n.bias", {4}, 0)});
  EXPECT_EQ(names(found),
            "n.weight n.bias n.running_mean n.running_var o.running_mean o.running_var ");
  EXPECT_EQ(notes(found).find("trained"), std::string::npos) << notes(found);
}

// The exporter reads the ones and zeros of another module in the place of those that are left out.
TEST_F(OnnxCallsTest, NormsWithoutParametersTrainNone) {
  parameters_ = {"n.weight", "n.bias"};
  const std::string norm = "aten.layer_norm.default](args = (%x, [4], ";
  const models::OnnxImport found = imported(
      {{"LayerNormalization",
        {"x", "n.weight", "n.bias"},
        "h",
        norm + "%p_n_weight, %p_n_bias, 1e-05, False)",
        "n"},
       {"LayerNormalization", {"h", "n.weight"}, "i", norm + "None, None, 1e-05)", "o"},
       {"LayerNormalization", {"i", "n.weight", "n.bias"}, "y", norm + "None, None, 1e-05)", "p"}},
      {equal_floats("n.weight", {4}, 1), equal_floats("n.bias", {4}, 0)});
  EXPECT_EQ(names(found), "n.weight n.bias ");
  EXPECT_EQ(occurrences(found.definition, "affine = false"), 2U) << found.definition;
  EXPECT_EQ(occurrences(found.definition, "tied"), 0U) << found.definition;
  EXPECT_EQ(occurrences(found.definition, "multiply"), 0U) << found.definition;
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
