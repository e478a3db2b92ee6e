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
#include "tests/support/layers_toml.h"
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
const std::string kImageLayers = test_support::layers_toml(R"(
conv2d stem out_channels=8 kernel=5 stride=2 padding=1
conv2d windows out_channels=8 kernel=[2,3] stride=[1,2] padding=[0,1,1,2] dilation=[2,1] groups=2
conv_transpose transposed out_channels=8 kernel=[3,2] stride=[1,2] padding=[1,0] groups=4
resize mode=nearest factor=[1.5,2]
resize mode=bilinear size=[14,13]
pad padded padding=[0,1,1,0] value=0.5
parameter kernels shape=[8,3,2,4] deviation=0.3
convolve inputs=["padded","kernels"] padding=[1,0,1,1] groups=2
group_norm groups groups=4 eps=0.01
group_norm groups=2 affine=false
batch_norm2d plain_norm affine=false
gelu start
pad_channels wide before=1 after=3
conv2d conv inputs=["start"] out_channels=12 kernel=1 bias=false
sync_batch_norm2d norm eps=0.1
add inputs=["norm","wide"]
relu sum
slice part first=2 count=8
shuffle_channels shuffled groups=4
concat inputs=["sum","shuffled","sum"]
conv2d depthwise out_channels=32 kernel=3 padding=1 groups=32
activation function=relu6
conv2d grouped out_channels=16 kernel=5 stride=2 padding=1 groups=4
activation expanded function=silu
global_average_pool
dense squeezed out=4
activation function=hard_swish
dense excited out=16
activation scales function=hard_sigmoid
multiply scaled inputs=["scales","expanded"]
activation gate function=sigmoid
multiply inputs=["scaled","gate"]
activation function=leaky_relu slope=0.2
activation function=tanh
layer_norm by_pixel
rms_norm rms_by_pixel
dense pixels out=16
softmax soft
matmul scores inputs=["soft","pixels"] transpose_second=true scale=0.25
matmul inputs=["scores","pixels"]
max_pool2d window=3 stride=2 padding=1 ceil_mode=true
average_pool2d window=3 stride=2 padding=1 ceil_mode=true
average_pool2d window=2 stride=1 padding=1
batch_norm2d logits
relu last
dropout
flatten flat
global_average_pool means inputs=["last"]
dense from_means out=classes bias=false
layer_norm of_vectors
dense from_flat inputs=["flat"] out=classes
add inputs=["of_vectors","from_flat"]
gelu approximate=tanh
dense mixed out=classes
dense mixed_again out=classes tied=mixed
)");

// More positions than the model reads, tied and untied matrices, logits that are not the last
// layer.
const std::string kTextLayers = test_support::layers_toml(R"(
logits=head
embedding tokens vocabulary=classes width=24
position_embedding places context=40
dense qkv out=72
causal_self_attention attention heads=3 dropout=0.2
dense grouped out=48
head_rms_norm heads heads=4 kv_heads=2
rotary heads=4 kv_heads=2 theta=100 factor=8 original_context=30
causal_self_attention heads=4 kv_heads=2
dense square out=24
dense square_again out=24 tied=square
gelu bent
add inputs=["bent","places"]
layer_norm norm eps=0.001
rms_norm rms eps=0.01
dropout rate=0.3
dense head out=classes bias=false tied=tokens
)");

// Layers in which a position depends on all others: not for texts of other lengths.
const std::string kWholeTextLayers = test_support::layers_toml(R"(
embedding tokens vocabulary=classes width=24
self_attention heads=4 kv_heads=2 head_size=3
dense qkv out=72
self_attention mixed heads=3
matmul scores inputs=["mixed","tokens"] transpose_second=true
softmax soft
matmul inputs=["soft","tokens"] scale=2
dense head out=classes
)");

// Each general layer on images, whose order in ONNX is another one, and on tensors of other ranks.
const std::string kGeneralLayers = test_support::layers_toml(R"(
slice rows axis=0 first=1 count=3 step=2
concat tall inputs=["input","rows"] axis=0
activation function=power exponent=2
activation function=clip low=0.25 high=1.5
scale_shift scale=-0.5 shift=0.75
layer_norm affine=false
permute turned order=[1,2,0]
gather chosen axis=1 indices=[2,0,2,1]
reduce column_means function=mean axes=[0] keep=true
subtract centered inputs=["chosen","column_means"]
reduce largest function=max axes=[-1]
parameter table shape=[4]
add flat_table inputs=["largest","table"]
reshape column shape=[3,4,1]
multiply products inputs=["column","centered"]
parameter row shape=[4,9]
add shifted inputs=["row","products"]
compare above function=less_equal inputs=["row","products"]
where picked inputs=["above","shifted","column"]
reshape windows shape=[3,2,3,-1]
permute moved order=[2,0,3,1]
constant scales shape=[3,1,1] initial=3
divide scaled inputs=["moved","scales"]
reduce sums function=sum axes=[3,1]
reshape image shape=[3,2,-1]
reshape vector shape=[-1]
dense fc out=classes
)");

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
