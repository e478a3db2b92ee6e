// Every family of models and every kind of layer: the engine's logits and onnxruntime's. Skipped
// where PEER_PYTHON (python3) has no onnx and onnxruntime:
//   python3 -m venv DIR && DIR/bin/pip install onnx onnxruntime numpy
#include <gtest/gtest.h>

#include <regex>

#include "engine/train/saving/weights.h"
#include "io/base/text/text_parts.h"
#include "models/model_catalog.h"
#include "models/onnx_export/onnx_export.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"

namespace {

using engine::Shape;

struct OnnxFamily {
  std::string name;  // of the catalog; NAME.toml: list_of()
  Shape sample;
  std::int64_t classes;
  std::vector<std::int64_t> batches;
};

// Sizes that leave a rest behind strides, so that ceil_mode and padding matter.
const char* const kImageLayers = R"(
[[layer]]
kind = "conv2d"
name = "stem"
out_channels = 8
kernel = 5
stride = 2
padding = 1
[[layer]]
kind = "conv2d"
name = "windows"
out_channels = 8
kernel = [2, 3]
stride = [1, 2]
padding = [0, 1, 1, 2]
dilation = [2, 1]
groups = 2
[[layer]]
kind = "conv_transpose"
name = "transposed"
out_channels = 8
kernel = [3, 2]
stride = [1, 2]
padding = [1, 0]
groups = 4
[[layer]]
kind = "resize"
mode = "nearest"
factor = [1.5, 2]
[[layer]]
kind = "resize"
mode = "bilinear"
size = [14, 13]
[[layer]]
kind = "pad"
name = "padded"
padding = [0, 1, 1, 0]
value = 0.5
[[layer]]
kind = "parameter"
name = "kernels"
shape = [8, 3, 2, 4]
deviation = 0.3
[[layer]]
kind = "convolve"
inputs = ["padded", "kernels"]
padding = [1, 0, 1, 1]
groups = 2
[[layer]]
kind = "group_norm"
name = "groups"
groups = 4
eps = 0.01
[[layer]]
kind = "group_norm"
groups = 2
affine = false
[[layer]]
kind = "batch_norm2d"
name = "plain_norm"
affine = false
[[layer]]
kind = "gelu"
name = "start"
[[layer]]
kind = "pad_channels"
name = "wide"
before = 1
after = 3
[[layer]]
kind = "conv2d"
name = "conv"
inputs = ["start"]
out_channels = 12
kernel = 1
bias = false
[[layer]]
kind = "sync_batch_norm2d"
name = "norm"
eps = 0.1
[[layer]]
kind = "add"
inputs = ["norm", "wide"]
[[layer]]
kind = "relu"
name = "sum"
[[layer]]
kind = "slice"
name = "part"
first = 2
count = 8
[[layer]]
kind = "shuffle_channels"
name = "shuffled"
groups = 4
[[layer]]
kind = "concat"
inputs = ["sum", "shuffled", "sum"]
[[layer]]
kind = "conv2d"
name = "depthwise"
out_channels = 32
kernel = 3
padding = 1
groups = 32
[[layer]]
kind = "activation"
function = "relu6"
[[layer]]
kind = "conv2d"
name = "grouped"
out_channels = 16
kernel = 5
stride = 2
padding = 1
groups = 4
[[layer]]
kind = "activation"
name = "expanded"
function = "silu"
[[layer]]
kind = "global_average_pool"
[[layer]]
kind = "dense"
name = "squeezed"
out = 4
[[layer]]
kind = "activation"
function = "hard_swish"
[[layer]]
kind = "dense"
name = "excited"
out = 16
[[layer]]
kind = "activation"
name = "scales"
function = "hard_sigmoid"
[[layer]]
kind = "multiply"
name = "scaled"
inputs = ["scales", "expanded"]
[[layer]]
kind = "activation"
name = "gate"
function = "sigmoid"
[[layer]]
kind = "multiply"
inputs = ["scaled", "gate"]
[[layer]]
kind = "activation"
function = "leaky_relu"
slope = 0.2
[[layer]]
kind = "activation"
function = "tanh"
[[layer]]
kind = "layer_norm"
name = "by_pixel"
[[layer]]
kind = "rms_norm"
name = "rms_by_pixel"
[[layer]]
kind = "dense"
name = "pixels"
out = 16
[[layer]]
kind = "softmax"
name = "soft"
[[layer]]
kind = "matmul"
name = "scores"
inputs = ["soft", "pixels"]
transpose_second = true
scale = 0.25
[[layer]]
kind = "matmul"
inputs = ["scores", "pixels"]
[[layer]]
kind = "max_pool2d"
window = 3
stride = 2
padding = 1
ceil_mode = true
[[layer]]
kind = "average_pool2d"
window = 3
stride = 2
padding = 1
ceil_mode = true
[[layer]]
kind = "average_pool2d"
window = 2
stride = 1
padding = 1
[[layer]]
kind = "batch_norm2d"
name = "logits"
[[layer]]
kind = "relu"
name = "last"
[[layer]]
kind = "dropout"
[[layer]]
kind = "flatten"
name = "flat"
[[layer]]
kind = "global_average_pool"
name = "means"
inputs = ["last"]
[[layer]]
kind = "dense"
name = "from_means"
out = "classes"
bias = false
[[layer]]
kind = "layer_norm"
name = "of_vectors"
[[layer]]
kind = "dense"
name = "from_flat"
inputs = ["flat"]
out = "classes"
[[layer]]
kind = "add"
inputs = ["of_vectors", "from_flat"]
[[layer]]
kind = "gelu"
approximate = "tanh"
[[layer]]
kind = "dense"
name = "mixed"
out = "classes"
[[layer]]
kind = "dense"
name = "mixed_again"
out = "classes"
tied = "mixed"
)";

// More positions than the model reads, tied and untied matrices, logits that are not the last
// layer.
const char* const kTextLayers = R"(
logits = "head"
[[layer]]
kind = "embedding"
name = "tokens"
vocabulary = "classes"
width = 24
[[layer]]
kind = "position_embedding"
name = "places"
context = 40
[[layer]]
kind = "dense"
name = "qkv"
out = 72
[[layer]]
kind = "causal_self_attention"
name = "attention"
heads = 3
dropout = 0.2
[[layer]]
kind = "dense"
name = "grouped"
out = 48
[[layer]]
kind = "head_rms_norm"
name = "heads"
heads = 4
kv_heads = 2
[[layer]]
kind = "rotary"
heads = 4
kv_heads = 2
theta = 100
factor = 8
original_context = 30
[[layer]]
kind = "causal_self_attention"
heads = 4
kv_heads = 2
[[layer]]
kind = "dense"
name = "square"
out = 24
[[layer]]
kind = "dense"
name = "square_again"
out = 24
tied = "square"
[[layer]]
kind = "gelu"
name = "bent"
[[layer]]
kind = "add"
inputs = ["bent", "places"]
[[layer]]
kind = "layer_norm"
name = "norm"
eps = 0.001
[[layer]]
kind = "rms_norm"
name = "rms"
eps = 0.01
[[layer]]
kind = "dropout"
rate = 0.3
[[layer]]
kind = "dense"
name = "head"
out = "classes"
bias = false
tied = "tokens"
)";

// Layers in which a position depends on all others: not for texts of other lengths.
const char* const kWholeTextLayers = R"(
[[layer]]
kind = "embedding"
name = "tokens"
vocabulary = "classes"
width = 24
[[layer]]
kind = "self_attention"
heads = 4
kv_heads = 2
head_size = 3
[[layer]]
kind = "dense"
name = "qkv"
out = 72
[[layer]]
kind = "self_attention"
name = "mixed"
heads = 3
[[layer]]
kind = "matmul"
name = "scores"
inputs = ["mixed", "tokens"]
transpose_second = true
[[layer]]
kind = "softmax"
name = "soft"
[[layer]]
kind = "matmul"
inputs = ["soft", "tokens"]
scale = 2
[[layer]]
kind = "dense"
name = "head"
out = "classes"
)";

// Each general layer on images, whose order in ONNX is another one, and on tensors of other ranks.
const char* const kGeneralLayers = R"(
[[layer]]
kind = "slice"
name = "rows"
axis = 0
first = 1
count = 3
step = 2
[[layer]]
kind = "concat"
name = "tall"
inputs = ["input", "rows"]
axis = 0
[[layer]]
kind = "activation"
function = "power"
exponent = 2
[[layer]]
kind = "activation"
function = "clip"
low = 0.25
high = 1.5
[[layer]]
kind = "scale_shift"
scale = -0.5
shift = 0.75
[[layer]]
kind = "layer_norm"
affine = false
[[layer]]
kind = "permute"
name = "turned"
order = [1, 2, 0]
[[layer]]
kind = "gather"
name = "chosen"
axis = 1
indices = [2, 0, 2, 1]
[[layer]]
kind = "reduce"
name = "column_means"
function = "mean"
axes = [0]
keep = true
[[layer]]
kind = "subtract"
name = "centered"
inputs = ["chosen", "column_means"]
[[layer]]
kind = "reduce"
name = "largest"
function = "max"
axes = [-1]
[[layer]]
kind = "parameter"
name = "table"
shape = [4]
[[layer]]
kind = "add"
name = "flat_table"
inputs = ["largest", "table"]
[[layer]]
kind = "reshape"
name = "column"
shape = [3, 4, 1]
[[layer]]
kind = "multiply"
name = "products"
inputs = ["column", "centered"]
[[layer]]
kind = "parameter"
name = "row"
shape = [4, 9]
[[layer]]
kind = "add"
name = "shifted"
inputs = ["row", "products"]
[[layer]]
kind = "compare"
name = "above"
function = "less_equal"
inputs = ["row", "products"]
[[layer]]
kind = "where"
name = "picked"
inputs = ["above", "shifted", "column"]
[[layer]]
kind = "reshape"
name = "windows"
shape = [3, 2, 3, -1]
[[layer]]
kind = "permute"
name = "moved"
order = [2, 0, 3, 1]
[[layer]]
kind = "constant"
name = "scales"
shape = [3, 1, 1]
initial = 3
[[layer]]
kind = "divide"
name = "scaled"
inputs = ["moved", "scales"]
[[layer]]
kind = "reduce"
name = "sums"
function = "sum"
axes = [3, 1]
[[layer]]
kind = "reshape"
name = "image"
shape = [3, 2, -1]
[[layer]]
kind = "reshape"
name = "vector"
shape = [-1]
[[layer]]
kind = "dense"
name = "fc"
out = "classes"
)";

std::string list_of(const std::string& name) {
  if (name == "general.toml") return kGeneralLayers;
  if (name == "image.toml") return kImageLayers;
  if (name == "whole_text.toml") return kWholeTextLayers;
  return name == "text.toml" ? kTextLayers : "";
}

class OnnxRuntime : public testing::TestWithParam<OnnxFamily> {
 protected:
  void SetUp() override {
    static const std::string missing = onnx_fixture::python_is_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  test_support::TemporaryDirectory folder_;
};

engine::Graph graph_of(const OnnxFamily& family, const Shape& sample) {
  return models::build_model(
      family.name,
      {.sample_shape = sample, .classes = family.classes, .definition = list_of(family.name)});
}

void add_image_case(const OnnxFamily& family, const engine::Graph& graph, engine::ModelState& state,
                    std::int64_t count, std::vector<io::NamedArray>& cases) {
  const Shape& item = family.sample;
  const std::string name = "batch_" + std::to_string(count);
  const std::vector<float> samples =
      onnx_fixture::random_samples(count * item.count(), static_cast<std::uint64_t>(count));
  std::vector<std::int64_t> shape{count, item[2], item[0], item[1]};
  if (item[0] * item[1] == 1) shape = {count, item[2]};
  cases.push_back(
      onnx_fixture::floats(name + ".input", onnx_fixture::channels_first(samples, item), shape));
  cases.push_back(onnx_fixture::floats(name + ".logits",
                                       onnx_fixture::logits_of_images(graph, state, count, samples),
                                       {count, family.classes}));
}

// Also with fewer positions than the graph was exported for, unless they depend on later ones.
void add_token_cases(const OnnxFamily& family, engine::ModelState& state, std::int64_t count,
                     std::vector<io::NamedArray>& cases) {
  const engine::Graph graph = graph_of(family, family.sample);
  const std::int64_t all = family.sample[0], vocabulary = family.classes;
  const std::vector<std::int32_t> tokens =
      onnx_fixture::random_tokens(count * all, vocabulary, static_cast<std::uint64_t>(count));
  const std::vector<float> logits = onnx_fixture::logits_of_tokens(graph, state, count, tokens);
  const bool whole = family.name == "whole_text.toml";
  for (const std::int64_t positions : {all, all / 2 + 1, std::int64_t{1}}) {
    if (whole && positions < all) continue;
    std::vector<std::int32_t> first;  // of each sample: what follows has no influence on them
    std::vector<float> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      first.insert(first.end(), tokens.begin() + i * all, tokens.begin() + i * all + positions);
      const auto begin = logits.begin() + i * all * vocabulary;
      expected.insert(expected.end(), begin, begin + positions * vocabulary);
    }
    const std::string name = "batch_" + std::to_string(count) + "_" + std::to_string(positions);
    cases.push_back(onnx_fixture::integers(name + ".input", first, {count, positions}));
    cases.push_back(
        onnx_fixture::floats(name + ".logits", expected, {count, positions, vocabulary}));
  }
}

TEST_P(OnnxRuntime, GivesTheLogitsOfTheEngine) {
  const OnnxFamily& family = GetParam();
  const engine::Graph graph = graph_of(family, family.sample);
  engine::ModelState state = onnx_fixture::random_state(graph);
  io::OnnxModel model = models::onnx_model(graph, engine::export_state(state, {}));
  model.name = family.name;
  const std::string path = folder_ / "m.onnx";
  io::save_onnx(model, path);
  std::vector<io::NamedArray> cases;
  for (const std::int64_t count : family.batches) {
    if (family.sample.rank() == 1)
      add_token_cases(family, state, count, cases);
    else
      add_image_case(family, graph, state, count, cases);
  }
  onnx_fixture::expect_equal_in_onnxruntime(path, cases);
}

INSTANTIATE_TEST_SUITE_P(
    Families, OnnxRuntime,
    testing::Values(OnnxFamily{"mlp", {28, 28, 1}, 10, {1, 3, 16}},
                    OnnxFamily{"mlp", {1, 1, 13}, 3, {1, 5}},  // rows of numbers
                    OnnxFamily{"convnet", {28, 20, 3}, 10, {1, 3, 16}},
                    OnnxFamily{"resnet18", {65, 64, 3}, 10, {1, 3}},
                    OnnxFamily{"resnet34", {64, 64, 3}, 10, {1, 2}},
                    OnnxFamily{"resnet50", {64, 70, 3}, 10, {1, 2}},
                    OnnxFamily{"resnet101", {32, 32, 3}, 10, {1, 2}},
                    OnnxFamily{"resnet152", {32, 32, 3}, 10, {1, 2}},
                    OnnxFamily{"resnet18-cifar", {32, 32, 3}, 10, {1, 3}},
                    OnnxFamily{"resnet50-cifar", {16, 16, 3}, 10, {1, 2}},
                    OnnxFamily{"resnet20-cifar", {32, 31, 3}, 10, {1, 3, 8}},
                    OnnxFamily{"resnet56-cifar", {32, 32, 3}, 100, {1, 3}},
                    OnnxFamily{"pyramidnet110", {15, 16, 3}, 10, {1, 3}},
                    OnnxFamily{"mingpt", {64}, 65, {1, 3}},
                    OnnxFamily{"gpt-nano", {64}, 65, {1, 3}},
                    OnnxFamily{"gpt-mini", {32}, 50, {1, 2}}, OnnxFamily{"gpt2", {16}, 40, {1}},
                    OnnxFamily{"image.toml", {26, 29, 3}, 7, {1, 2, 5}},
                    OnnxFamily{"image.toml", {31, 22, 1}, 5, {3}},
                    OnnxFamily{"general.toml", {6, 3, 4}, 5, {1, 3}},
                    OnnxFamily{"text.toml", {17}, 31, {1, 4}},
                    OnnxFamily{"whole_text.toml", {17}, 31, {1, 4}}),
    [](const auto& test) {
      return test_support::test_name(test.param.name) + "_" + std::to_string(test.index);
    });

// A comparison that finds nothing would not be noticed otherwise.
TEST(OnnxCheck, FindsADifference) {
  const std::string missing = onnx_fixture::python_is_missing();
  if (!missing.empty()) GTEST_SKIP() << missing;
  const test_support::TemporaryDirectory folder;
  const OnnxFamily family{"mlp", {4, 4, 1}, 3, {2}};
  const engine::Graph graph = graph_of(family, family.sample);
  engine::ModelState state = onnx_fixture::random_state(graph);
  io::OnnxModel model = models::onnx_model(graph, engine::export_state(state, {}));
  model.name = family.name;
  io::save_onnx(model, folder / "m.onnx");
  std::vector<io::NamedArray> cases;
  add_image_case(family, graph, state, 2, cases);
  for (float& logit : std::span(reinterpret_cast<float*>(cases[1].data.data()), 6))
    logit *= 1.0001F;
  const test_support::CommandResult result =
      onnx_fixture::compare_in_onnxruntime(folder / "m.onnx", cases);
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_CONTAINS(result.out, "largest difference ") << result.err;
}

// A new kind of layer comes into one of the lists above.
TEST(OnnxLayers, AllKindsAreInTheLists) {
  std::string known;
  try {
    models::build_model(
        "x.toml", {.sample_shape = {8, 8, 1}, .definition = "[[layer]]\nkind = \"nothing\"\n"});
  } catch (const engine::ModelError& error) {
    known = error.what();
  }
  const std::size_t begin = known.find("(known: ");
  ASSERT_NE(begin, std::string::npos) << known;
  known = known.substr(begin + 8);
  const std::regex word("[a-z0-9_]+");
  int kinds = 0;
  for (std::sregex_iterator at(known.begin(), known.end(), word), end; at != end; ++at, ++kinds)
    EXPECT_CONTAINS((std::string(kImageLayers) + kTextLayers + kWholeTextLayers + kGeneralLayers),
                    "\"" + at->str() + "\"")
        << at->str();
  EXPECT_GE(kinds, 18);
}

}  // namespace
