// Tests what the exporter computed from a parameter, by the metadata or the names of its file.
#include "models/onnx_origins/onnx_computations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using models::OnnxComputation;

io::ReadNode reading_node(const std::string& type, const std::vector<std::string>& inputs,
                          const std::string& call = "") {
  io::ReadNode node;
  node.type = type;
  node.inputs = inputs;
  if (!call.empty()) node.call = "call_function[target=torch.ops." + call + ", kwargs = {})";
  return node;
}

// A file with dynamo=True, whose tensor is computed from these values.
OnnxComputation computed_from(const std::string& tensor, const std::string& values,
                              const std::string& call) {
  io::OnnxGraph graph;
  graph.metadata[io::kOnnxSignature] =
      "p_w: PARAMETER target='w'\np_v: PARAMETER target='v'\nb_mask: BUFFER target='mask'\n";
  graph.folded_from[tensor] = values;
  return models::computation_of(models::OnnxOrigins(graph),
                                reading_node("MatMul", {"x", tensor}, call), tensor);
}

TEST(OnnxComputations, FollowFromTheValuesThatTheyWereComputedFrom) {
  const std::string linear = "aten.linear.default](args = (%x, %p_w)";
  EXPECT_EQ(computed_from("val_3", "['w']", linear), OnnxComputation::kOrder);
  EXPECT_EQ(computed_from("t_1", "['w']", linear), OnnxComputation::kOrder);
  EXPECT_EQ(computed_from("slice_2", "['w', 't', 'val_1']", linear), OnnxComputation::kPart);
  EXPECT_EQ(computed_from("softplus", "['w', 'tmp_1']", linear), OnnxComputation::kNumbers);
  EXPECT_EQ(computed_from("mul", "['w', 'mask']", linear), OnnxComputation::kNumbers);
  EXPECT_EQ(computed_from("t", "['w', 'v']", linear), OnnxComputation::kNumbers);
  EXPECT_EQ(computed_from("val_3", "['mask']", linear), OnnxComputation::kNone);
  // Inner values of a call may have other numbers: those of a sum with alpha.
  EXPECT_EQ(computed_from("val_3", "['w']", "aten.add.Tensor](args = (%x, %p_w)"),
            OnnxComputation::kNumbers);
}

TEST(OnnxComputations, FollowFromNamesWithoutASignature) {
  io::OnnxGraph graph;
  graph.producer = "pytorch";
  const models::OnnxOrigins origins(graph);
  const auto of = [&](const std::string& type, const std::vector<std::string>& inputs,
                      std::size_t tensor) {
    return models::computation_of(origins, reading_node(type, inputs), inputs[tensor]);
  };
  EXPECT_EQ(of("Conv", {"x", "onnx::Conv_7", "c.bias"}, 1), OnnxComputation::kNumbers);
  EXPECT_EQ(of("Conv", {"x", "onnx::Conv_7", "onnx::Conv_8"}, 1),
            OnnxComputation::kNone);  // a norm
  EXPECT_EQ(of("Conv", {"x", "c.weight"}, 1), OnnxComputation::kNone);
  EXPECT_EQ(of("Gather", {"onnx::Gather_7", "ids"}, 0), OnnxComputation::kNumbers);
  EXPECT_EQ(of("MatMul", {"x", "onnx::MatMul_7"}, 1), OnnxComputation::kNone);
  EXPECT_EQ(of("Gemm", {"x", "onnx::Gemm_7"}, 1), OnnxComputation::kNone);  // as it is
}

TEST(OnnxComputations, AnArgumentOfNoneIsNoParameter) {
  const auto neutral = [](const std::string& type, const std::string& call, std::size_t index) {
    return models::is_neutral_input(reading_node(type, {"x", "w", "b"}, call), index);
  };
  const std::string norm = "aten.layer_norm.default](args = (%x, [4], %p_w, None, 1e-05)";
  EXPECT_FALSE(neutral("LayerNormalization", norm, 1));
  EXPECT_TRUE(neutral("LayerNormalization", norm, 2));
  EXPECT_FALSE(neutral("LayerNormalization", "", 2));
  const std::string groups = "aten.group_norm.default](args = (%x, 2, %p_w, None, 1e-05)";
  EXPECT_TRUE(neutral("InstanceNormalization", groups, 1));
  EXPECT_FALSE(neutral("Mul", groups, 1));
  EXPECT_TRUE(neutral("Add", groups, 1));
  EXPECT_FALSE(neutral("Add", "aten.linear.default](args = (%x, %w, None)", 1));
}

}  // namespace
