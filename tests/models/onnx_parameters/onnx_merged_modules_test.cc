// Modules of equal parameters, whose calls the exporter has merged.
#include "models/onnx_parameters/onnx_merged_modules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

std::string scopes_of(const std::string& module) { return "['', '" + module + "', 'linear']"; }

std::string call_of(const std::string& function, const std::string& arguments) {
  return "call_function[target=torch.ops.aten." + function + "](args = (" + arguments +
         "), kwargs = {})";
}

io::ReadNode merged_node(const std::string& type, const std::vector<std::string>& inputs,
                         const std::string& to, const std::string& module,
                         const std::string& call) {
  io::ReadNode node;
  node.type = type;
  node.name = to;
  node.inputs = inputs;
  node.outputs = {to};
  if (!module.empty()) node.scopes = scopes_of(module);
  node.call = call;
  return node;
}

io::StoredTensor tensor_named(const std::string& name) {
  io::StoredTensor tensor;
  tensor.name = name;
  return tensor;
}

// Modules a and b compute "relu" from a part of their matrices: b's is that of a in the file, which
// its last node reads.
io::OnnxGraph graph_of(const std::string& second) {
  io::OnnxGraph graph;
  graph.metadata[io::kOnnxSignature] =
      "p_a_in_weight: PARAMETER target='a.in_weight'\n"
      "p_b_in_weight: PARAMETER target='b.in_weight'\n";
  graph.constants = {tensor_named("a.in_weight"), tensor_named("lengths")};
  graph.nodes = {
      merged_node("Split", {"a.in_weight", "lengths"}, "split_0", "", ""),
      merged_node("MatMul", {"memory", "split_0"}, "keys", "a",
                  call_of("linear.default", "%memory, %getitem")),
      merged_node("Relu", {"keys"}, "relu", "a", call_of("relu.default", "%keys")),
      merged_node("MatMul", {"x", "relu"}, "y", "a", call_of("matmul.default", "%x, %relu")),
      merged_node("MatMul", {"y", "relu"}, "z", second, call_of("matmul.default", "%y, %relu_1"))};
  graph.nodes[0].outputs.emplace_back("split_1");
  return graph;
}

TEST(OnnxMergedModules, HaveNodesOfTheirOwnAgain) {
  const auto separated = models::with_separate_modules(graph_of("b"));
  ASSERT_TRUE(separated);
  std::vector<std::string> types;
  for (const io::ReadNode& node : separated->nodes) types.push_back(node.type);
  EXPECT_EQ(types, (std::vector<std::string>{"Split", "MatMul", "Relu", "MatMul", "Split", "MatMul",
                                             "Relu", "MatMul"}));
  const io::ReadNode &split = separated->nodes[4], &keys = separated->nodes[5],
                     &last = separated->nodes[7];
  EXPECT_EQ(split.inputs[0], "a.in_weight");  // the name in PyTorch follows from the module
  EXPECT_EQ(split.scopes, scopes_of("b"));
  EXPECT_EQ(keys.inputs, (std::vector<std::string>{"memory", split.outputs[0]}));
  EXPECT_EQ(last.inputs, (std::vector<std::string>{"y", separated->nodes[6].outputs[0]}));
  EXPECT_EQ(separated->nodes[0].scopes, scopes_of("a"));
}

// A module that has lost no parameter, one whose call names the value, and another program's file.
TEST(OnnxMergedModules, OthersStayAsTheyAre) {
  EXPECT_EQ(models::with_separate_modules(graph_of("c"))->nodes.size(), 5U);
  io::OnnxGraph named = graph_of("b");
  named.nodes[4].call = call_of("matmul.default", "%y, %relu");
  named.nodes[4].inputs[0] = "x";
  EXPECT_EQ(models::with_separate_modules(named)->nodes.size(), 5U);
  named.metadata.clear();
  EXPECT_FALSE(models::with_separate_modules(named));
}

// Nodes that read their own outputs are rejected later.
TEST(OnnxMergedModules, CirclesEnd) {
  io::OnnxGraph graph = graph_of("b");
  graph.nodes[1].inputs[0] = "relu";
  EXPECT_TRUE(models::with_separate_modules(graph));
}

}  // namespace
