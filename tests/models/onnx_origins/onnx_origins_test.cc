// Which tensors of an ONNX file are trained: by PyTorch's signature, and by names in files without.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/base/formats/protobuf_message.h"
#include "io/interchange/onnx_writer.h"
#include "models/model_catalog.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using base::ProtobufMessage;
using onnx_constants::floats, onnx_constants::metadata_entry, onnx_constants::scalar,
    onnx_constants::Ints;

io::OnnxNode value_node(const std::string& type, const std::vector<std::string>& inputs,
                        const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, "/" + to + "/" + type, inputs, {to}, std::move(attributes)};
}

// Equal numbers.
io::NamedArray filled(const std::string& name, const Ints& shape, float value) {
  io::NamedArray array = floats(name, shape);
  const io::NamedArray one = scalar(name, value);
  for (std::size_t i = 0; i < array.data.size(); i += 4)
    std::copy(one.data.begin(), one.data.end(),
              array.data.begin() + static_cast<std::ptrdiff_t>(i));
  return array;
}

class OnnxOriginsTest : public testing::Test {
 protected:
  // The nodes go from the image "x", [batch, 4, 3, 3], to "end", which a mean and a matrix follow.
  models::OnnxImport imported(const std::vector<io::OnnxNode>& nodes,
                              const std::vector<io::NamedArray>& constants,
                              const std::string& producer = "pytorch") {
    io::OnnxModel model;
    model.producer = producer;
    model.inputs = {{.name = "x", .shape = {"batch", 4, 3, 3}}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = nodes;
    model.nodes.push_back(value_node("GlobalAveragePool", {"end"}, "pool"));
    model.nodes.push_back(value_node("Flatten", {"pool"}, "flat"));
    model.nodes.push_back(
        value_node("Gemm", {"flat", "fc.weight", "fc.bias"}, "y", {{"transB", std::int64_t{1}}}));
    model.constants = constants;
    model.constants.push_back(floats("fc.weight", {3, 4}));
    model.constants.push_back(floats("fc.bias", {3}));
    io::save_onnx(model, path_);
    if (!signature_.empty()) {
      ProtobufMessage more;
      more.message(
          16, metadata_entry(io::kOnnxSignature,
                             "\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\np_fc_bias: "
                             "PARAMETER target='fc.bias'\n" +
                                 signature_));
      for (const auto& [name, sources] : folded_) {
        ProtobufMessage value;
        value.text(1, name).message(4, metadata_entry(io::kOnnxFoldedFrom, sources));
        more.message(13, std::move(value));
      }
      onnx_constants::add_to_graph(path_, more);
    }
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  // Names of trained arrays without those of the last layer, then of constants.
  static std::string names(const models::OnnxImport& found) {
    std::string text;
    for (const io::NamedArray& array : found.arrays)
      if (!array.name.starts_with("fc."))
        text += (array.section == io::Section::kBuffer ? "buffer " : "") + array.name + " ";
    return text;
  }
  static std::string notes(const models::OnnxImport& found) {
    std::string text;
    for (const std::string& note : found.notes) text += note + "\n";
    return text;
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
  std::string signature_;                                         // further lines of it
  std::vector<std::pair<std::string, std::string>> folded_ = {};  // with the signature
};

const std::vector<io::OnnxNode> kShifted{value_node("Sub", {"x", "norm.mean"}, "a"),
                                         value_node("Mul", {"a", "gamma"}, "end")};

TEST_F(OnnxOriginsTest, ASignatureNamesParametersAndBuffers) {
  signature_ =
      "p_gamma: PARAMETER target='gamma'\nb_mean: BUFFER target='norm.mean' persistent=True\n"
      "\n# outputs\nout: BUFFER_MUTATION target='gamma'\n";
  const models::OnnxImport found =
      imported(kShifted, {floats("norm.mean", {1, 4, 1, 1}), floats("gamma", {4, 1, 1})});
  EXPECT_EQ(names(found), "buffer norm.mean.value gamma.weight ");
  EXPECT_EQ(notes(found), "");
}

TEST_F(OnnxOriginsTest, ComputedTensorsAreWhatTheyWereComputedFrom) {
  signature_ =
      "p_gamma: PARAMETER target='gamma'\nb_mean: BUFFER target='norm.mean' persistent=True\n"
      "c_0: CONSTANT_TENSOR target='lifted_tensor_0'\n";
  folded_ = {{"view", "['lifted_tensor_0', 'val_1']"},
             {"unsqueeze", "['index', 'gamma', 'norm.mean']"},
             {"val_9", "['val_3']"}};
  const models::OnnxImport found = imported(
      {value_node("Mul", {"x", "view"}, "a"), value_node("Add", {"a", "unsqueeze"}, "b"),
       value_node("Sub", {"b", "val_9"}, "end")},
      {floats("view", {1, 4, 1, 1}), floats("unsqueeze", {1, 4, 3, 3}), floats("val_9", {3, 3})});
  EXPECT_EQ(names(found), "buffer view.value unsqueeze.weight buffer end.value ");
  EXPECT_LINES(found.notes, "trained exporter unsqueeze.weight (from gamma); optimize=False");
}

// Without a signature, the exporter gives the other one its name by a node.
TEST_F(OnnxOriginsTest, EqualWeightsOfTwoNamesAreTrainedApart) {
  const models::OnnxImport found =
      imported({value_node("Identity", {"layers.0.weight"}, "layers.1.weight"),
                {"Conv", "/layers.0/Conv", {"x", "layers.0.weight"}, {"a"}, {}},
                {"Conv", "/layers.1/Conv", {"a", "layers.1.weight"}, {"end"}, {}}},
               {floats("layers.0.weight", {4, 4, 1, 1})});
  EXPECT_EQ(names(found), "layers.0.weight layers.1.weight ");
}

// PReLU's slope has further dimensions in the file, and is the same parameter.
TEST_F(OnnxOriginsTest, AReshapedSlopeKeepsItsName) {
  signature_ = "p_slope: PARAMETER target='act.weight'\n";
  folded_ = {{"val_2", "['act.weight']"}};
  const models::OnnxImport found =
      imported({value_node("PRelu", {"x", "val_2"}, "end")}, {floats("val_2", {1, 1, 1, 1})});
  EXPECT_EQ(names(found), "act.weight ");
  EXPECT_EQ(notes(found), "");
}

// Equal parameters of two modules are one tensor in the file, which both nodes read.
TEST_F(OnnxOriginsTest, MergedParametersOfOtherModulesAreSeparate) {
  signature_ =
      "p_a: PARAMETER target='one.alpha'\np_b: PARAMETER target='two.alpha'\n"
      "p_c: PARAMETER target='shared.alpha'\n";
  std::vector<io::OnnxNode> nodes{value_node("Mul", {"x", "one.alpha"}, "a"),
                                  value_node("Mul", {"a", "one.alpha"}, "b"),
                                  value_node("Mul", {"b", "one.alpha"}, "end")};
  nodes[0].name = "/one/Mul", nodes[1].name = "/two/Mul", nodes[2].name = "/three/Mul";
  EXPECT_EQ(names(imported(nodes, {floats("one.alpha", {1})})),
            "one.alpha.weight two.alpha.weight ");
  // Without a signature, the exporter writes an Identity with the other name.
  signature_ = "";
  nodes.insert(nodes.begin(), value_node("Identity", {"one.alpha"}, "two.alpha"));
  nodes[2].inputs[1] = "two.alpha";
  EXPECT_EQ(names(imported(nodes, {floats("one.alpha", {1})})),
            "one.alpha.weight two.alpha.weight ");
}

// Without a signature, a buffer looks like a parameter: one line names them all.
TEST_F(OnnxOriginsTest, TensorsThatMayBeBuffersAreNamed) {
  const models::OnnxImport found =
      imported(kShifted, {floats("norm.mean", {1, 4, 1, 1}), floats("gamma", {4, 1, 1})});
  EXPECT_EQ(names(found), "norm.mean.weight gamma.weight ");
  EXPECT_LINES(found.notes,
               "buffers; trained: norm.mean.weight, gamma.weight; --freeze "
               "'norm.mean.weight,gamma.weight'");
}

TEST_F(OnnxOriginsTest, ComputedTensorsOfUnknownOriginAreConstants) {
  const models::OnnxImport found = imported({value_node("Sub", {"x", "onnx::Sub_12"}, "end")},
                                            {floats("onnx::Sub_12", {1, 4, 1, 1})});
  EXPECT_EQ(names(found), "buffer end.value ");
  EXPECT_VALUES(notes(found), "onnx::Sub_12 do_constant_folding=False");
}

// Without a signature, a name says that the exporter has computed a weight: it writes those of
// Linear layers and convolutions as they are, except the matrices of MatMul.
TEST_F(OnnxOriginsTest, WeightsWithoutANameAreNamed) {
  const models::OnnxImport conv =
      imported({{"Conv", "/c/Conv", {"x", "onnx::Conv_7", "c.bias"}, {"end"}, {}}},
               {floats("onnx::Conv_7", {4, 4, 1, 1}), floats("c.bias", {4})});
  EXPECT_EQ(names(conv), "c.conv.weight c.conv.bias ");
  EXPECT_VALUES(notes(conv), "computed c.conv.weight do_constant_folding=False");
  const models::OnnxImport linear =
      imported({value_node("GlobalAveragePool", {"x"}, "g"),
                value_node("Flatten", {"g"}, "f"),
                {"Gemm", "/m/Gemm", {"f", "onnx::Gemm_7"}, {"z"}, {{"transB", std::int64_t{1}}}},
                value_node("Unsqueeze", {"z", "axes"}, "u"),
                value_node("Add", {"x", "u"}, "end")},
               {floats("onnx::Gemm_7", {4, 4}), onnx_constants::integers("axes", {2, 3})});
  EXPECT_EQ(names(linear), "m.gemm.weight ");
  EXPECT_VALUES(notes(linear), "computed m.gemm.weight do_constant_folding=False");
}

// A matrix that MatMul reads may be a transposed parameter, as that of a Linear layer is.
TEST_F(OnnxOriginsTest, MatricesThatMayBeComputedAreNamed) {
  const io::NamedArray matrix = floats("onnx::MatMul_7", {3, 3}, 1);
  const io::OnnxNode product{"MatMul", "/m/MatMul", {"x", matrix.name}, {"p"}, {}};
  const auto notes_of = [&](const std::string& module, const io::NamedArray& of) {
    return notes(imported({product, {"Relu", "/" + module + "/Relu", {"p"}, {"end"}, {}}}, {of}));
  };
  EXPECT_EQ(notes_of("other", matrix), "");
  EXPECT_VALUES(notes_of("m", matrix), "m.weight do_constant_folding=False");
  EXPECT_VALUES(notes_of("other", floats("onnx::MatMul_7", {3, 3})), "m.weight");  // with a 0
  EXPECT_EQ(notes_of("other", filled("onnx::MatMul_7", {3, 3}, 0)), "");
}

TEST_F(OnnxOriginsTest, ConstantsThatAreComputedOnAreNamed) {
  const models::OnnxImport found =
      imported({value_node("Sqrt", {"onnx::Sqrt_7"}, "s"), value_node("Mul", {"x", "s"}, "end")},
               {floats("onnx::Sqrt_7", {4, 1, 1}, 1)});
  EXPECT_VALUES(notes(found), "onnx::Sqrt_7 do_constant_folding=False");
}

// GroupNorm with a weight of 1 and a bias of 0, which may be parameters.
TEST_F(OnnxOriginsTest, NormsWhoseNumbersHaveNoNameAreNamed) {
  const models::OnnxImport found = imported(
      {{"InstanceNormalization", "/n/InstanceNormalization", {"x", "/n/1", "/n/0"}, {"i"}, {}},
       {"Mul", "/n/Mul", {"i", "onnx::Mul_7"}, {"m"}, {}},
       {"Add", "/n/Add", {"m", "onnx::Add_8"}, {"end"}, {}}},
      {filled("/n/1", {4}, 1), filled("/n/0", {4}, 0), filled("onnx::Mul_7", {4, 1, 1}, 1),
       filled("onnx::Add_8", {4, 1, 1}, 0)});
  EXPECT_EQ(names(found), "");
  EXPECT_VALUES(notes(found), "1 0 n do_constant_folding=False");
}

TEST_F(OnnxOriginsTest, ManyTensorsThatMayBeBuffersAreNamedByPatterns) {
  std::vector<io::OnnxNode> nodes;
  std::vector<io::NamedArray> constants;
  std::string from = "x";
  for (int i = 0; i < 5; ++i) {
    const std::string block = "b." + std::to_string(i) + ".";
    nodes.push_back(value_node("Mul", {from, block + "gamma"}, block + "m"));
    nodes.push_back(value_node("Add", {block + "m", block + "beta"}, block + "a"));
    from = block + "a";
    constants.push_back(floats(block + "gamma", {4, 1, 1}));
    constants.push_back(floats(block + "beta", {4, 1, 1}));
  }
  nodes.push_back(value_node("Identity", {from}, "end"));
  EXPECT_VALUES(notes(imported(nodes, constants)),
                "b.*.gamma.weight b.*.beta.weight b.*.gamma.weight,b.*.beta.weight");
}

// The file names a tensor of zeros as one of those that are equal: another one may be a norm's.
TEST_F(OnnxOriginsTest, ParametersWithTheTensorOfABufferAreNotNamed) {
  const models::OnnxImport found =
      imported({value_node("Identity", {"b.shift"}, "n.bias"),
                value_node("Add", {"x", "b.shift"}, "a"),
                {"LayerNormalization", "/n/L", {"a", "n.weight", "n.bias"}, {"end"}, {}}},
               {floats("b.shift", {3}), floats("n.weight", {3})});
  EXPECT_VALUES(notes(found), "b.shift.weight --freeze");
  EXPECT_EQ(notes(found).find("n.bias"), std::string::npos) << notes(found);
}

// torchvision's FrozenBatchNorm2d: no norm reads its statistics.
TEST_F(OnnxOriginsTest, StatisticsOutsideOfANormFreezeTheirModule) {
  const models::OnnxImport found = imported(
      {value_node("Identity", {"n.bias"}, "n.running_mean"),
       value_node("Sub", {"x", "n.running_mean"}, "a"), value_node("Sqrt", {"n.running_var"}, "s"),
       value_node("Div", {"a", "s"}, "b"), value_node("Mul", {"b", "n.weight"}, "c"),
       value_node("Add", {"c", "n.bias"}, "end")},
      {filled("n.weight", {4, 1, 1}, 2), filled("n.bias", {4, 1, 1}, 0.5F),
       filled("n.running_var", {4, 1, 1}, 4)});
  for (const io::NamedArray& array : found.arrays)
    if (!array.name.starts_with("fc."))
      EXPECT_EQ(array.section, io::Section::kBuffer) << array.name;
  EXPECT_EQ(notes(found), "");
}

TEST_F(OnnxOriginsTest, NormsWithoutWeightsHaveNone) {
  const std::vector<io::NamedArray> ones{filled("val_3", {4}, 1), filled("val_4", {4}, 0)};
  const models::OnnxImport instance =
      imported({value_node("InstanceNormalization", {"x", "val_3", "val_4"}, "end")}, ones);
  EXPECT_EQ(names(instance), "");
  EXPECT_CONTAINS(instance.definition, "kind = \"group_norm\"");
  EXPECT_CONTAINS(instance.definition, "affine = false");
  std::vector<io::NamedArray> statistics = ones;
  statistics.push_back(floats("n.running_mean", {4}));
  statistics.push_back(floats("n.running_var", {4}));
  const models::OnnxImport batch =
      imported({value_node("BatchNormalization",
                           {"x", "val_3", "val_4", "n.running_mean", "n.running_var"}, "end")},
               statistics);
  EXPECT_EQ(names(batch), "buffer n.running_mean buffer n.running_var ");
  EXPECT_CONTAINS(batch.definition, "affine = false");
  const models::OnnxImport layer = imported(
      {value_node("LayerNormalization", {"x", "val_3"}, "end")}, {filled("val_3", {3}, 1)});
  EXPECT_EQ(names(layer), "");
  EXPECT_CONTAINS(layer.definition, "affine = false");
  EXPECT_EQ(notes(instance) + notes(batch) + notes(layer), "");
}

TEST_F(OnnxOriginsTest, ALayerNormWithoutABiasTrainsNone) {
  const models::OnnxImport found = imported(
      {value_node("LayerNormalization", {"x", "n.weight"}, "end")}, {floats("n.weight", {3})});
  EXPECT_EQ(names(found), "n.weight ");
  EXPECT_CONTAINS(found.definition, "affine = false");
  EXPECT_CONTAINS(found.definition, "kind = \"multiply\"");
}

// A convolution has no weight that is not trained.
TEST_F(OnnxOriginsTest, ABufferThatIsAWeightIsNamed) {
  signature_ = "b_blur: BUFFER target='blur.kernel' persistent=True\n";
  const models::OnnxImport found = imported({value_node("Conv", {"x", "blur.kernel"}, "end")},
                                            {floats("blur.kernel", {4, 4, 1, 1})});
  EXPECT_LINES(found.notes, "trained, end.weight; --freeze 'end.weight'");
}

// ReZero, a temperature, and a scale in log space. Numbers of other programs have names as well.
TEST_F(OnnxOriginsTest, NamedScalarsOfPyTorchAreTrained) {
  const std::vector<io::OnnxNode> nodes{
      value_node("Mul", {"alpha", "x"}, "a"), value_node("Div", {"a", "temperature"}, "b"),
      value_node("Exp", {"logit_scale"}, "s"), value_node("Mul", {"b", "s"}, "c"),
      value_node("Add", {"c", "/c/Constant_output_0"}, "end")};
  const std::vector<io::NamedArray> constants{floats("alpha", {1}, 0.5F), scalar("temperature", 5),
                                              scalar("logit_scale", 2),
                                              scalar("/c/Constant_output_0", 3)};
  const models::OnnxImport found = imported(nodes, constants);
  EXPECT_EQ(names(found), "alpha.weight temperature.weight logit_scale.weight ");
  EXPECT_CONTAINS(notes(found), "also trained: alpha.weight, temperature.weight, ");
  EXPECT_EQ(names(imported({nodes[0], value_node("Div", {"a", "temperature"}, "end")},
                           {constants[0], constants[1]}, "other")),
            "");
  // The file's numbers take their part in the model.
  io::OnnxReader reader(path_);
  signature_ = "p_alpha: PARAMETER target='alpha'\n";
  EXPECT_EQ(names(imported({nodes[0], value_node("Div", {"a", "beta_cast"}, "end")},
                           {constants[0], scalar("beta_cast", 2)})),
            "alpha.weight ");
}

// GeM pooling: exp(p log(x)).
TEST_F(OnnxOriginsTest, AnExponentIsTrained) {
  const models::OnnxImport found =
      imported({value_node("Pow", {"x", "p"}, "end")}, {floats("p", {1}, 3)});
  EXPECT_EQ(names(found), "p.weight ");
  EXPECT_CONTAINS(found.definition, "function = \"log\"");
  EXPECT_CONTAINS(found.definition, "function = \"exp\"");
}

TEST_F(OnnxOriginsTest, AParameterThatIsReadAsANumberIsNamed) {
  EXPECT_LINES(imported({value_node("Clip", {"x", "low"}, "end")}, {scalar("low", 0.5F)}).notes,
               "not trained, low");
}

}  // namespace
