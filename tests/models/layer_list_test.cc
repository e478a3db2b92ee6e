// Models from TOML: every kind of layer, defaults, and messages that say where and what.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "engine/graph/executor.h"
#include "engine/graph/parameter_kinds.h"
#include "models/model_catalog.h"
#include "models/onnx_origins/file_layout.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

class LayerList : public testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const std::string path = folder_ / "m.toml";
    test_support::write_text(path, text);
    return path;
  }
  engine::Graph build(const std::string& text, const models::ModelOptions& options = {
                                                   .sample_shape = {8, 8, 2}, .classes = 3}) const {
    return models::build_model(write(text), options);
  }
  // The message without the folder; "m.toml:LINE: ..."
  template <class Error = engine::ModelError>
  std::string error_of(const std::string& text) const {
    try {
      build(text);
    } catch (const Error& error) {
      const std::string message = error.what();
      return message.substr(message.find("m.toml"));
    } catch (const std::exception& error) {
      return std::string("another error: ") + error.what();
    }
    return "no error";
  }

  test_support::TemporaryDirectory folder_;
};

constexpr const char* kEveryKind = R"(
logits = "fc"
[[layer]]
kind = "conv2d"
name = "c1"
out_channels = 4
kernel = 5
stride = 1
padding = 2
bias = false
[[layer]]
kind = "batch_norm2d"
name = "n1"
eps = 1e-3
momentum = 1
[[layer]]
kind = "relu"
name = "start"
[[layer]]
kind = "conv2d"
name = "c2"
out_channels = 4
padding = 1
[[layer]]
kind = "conv2d"
name = "c3"
out_channels = 4
padding = 1
groups = 4
[[layer]]
kind = "activation"
function = "hard_swish"
name = "gate"
[[layer]]
kind = "multiply"
inputs = ["start", "gate"]
[[layer]]
kind = "group_norm"
name = "n2"
groups = 2
[[layer]]
kind = "softmax"
name = "soft"
[[layer]]
kind = "matmul"
name = "scores"
inputs = ["soft", "start"]
transpose_second = true
scale = 0.5
[[layer]]
kind = "matmul"
name = "mixed"
inputs = ["scores", "n2"]
[[layer]]
kind = "add"
name = "sum"
inputs = ["mixed", "start"]
[[layer]]
kind = "max_pool2d"
window = 3
stride = 2
padding = 1
[[layer]]
kind = "average_pool2d"
window = 2
name = "pooled"
ceil_mode = true
[[layer]]
kind = "conv2d"
name = "wide"
out_channels = 4
kernel = [1, 3]
padding = [0, 1]
dilation = [2, 1]
[[layer]]
kind = "conv_transpose"
name = "pooled_up"
out_channels = 4
kernel = 2
stride = [2, 1]
padding = [0, 0, 0, 1]
[[layer]]
kind = "parameter"
name = "kernels"
shape = [4, 1, 1, 2]
[[layer]]
kind = "convolve"
inputs = ["pooled_up", "kernels"]
groups = 2
[[layer]]
kind = "resize"
mode = "bilinear"
factor = [1.5, 2]
[[layer]]
kind = "resize"
mode = "nearest"
size = [3, 2]
[[layer]]
kind = "pad"
padding = [0, 0, 1, 1]
value = -1
[[layer]]
kind = "pad_channels"
after = 3
name = "padded"
[[layer]]
kind = "global_average_pool"
[[layer]]
kind = "dropout"
rate = 0.1
[[layer]]
kind = "dense"
name = "left"
out = 5
[[layer]]
kind = "flatten"
inputs = ["padded"]
[[layer]]
kind = "dense"
name = "right"
out = 5
bias = false
[[layer]]
kind = "add"
inputs = ["left", "right"]
[[layer]]
kind = "dense"
name = "fc"
out = "classes"
)";

TEST_F(LayerList, TakesEveryKindAndRuns) {
  const engine::Graph graph = build(kEveryKind);
  EXPECT_EQ(graph.nodes().size(), 2U + 29 + 1);
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 1);
  EXPECT_EQ(state.entries.front().name, "c1.weight");
  EXPECT_EQ(state.entries.back().name, "fc.bias");
  const engine::Plan plan = engine::Plan::compile(graph, {.max_batch = 2});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 1);
  const std::vector<float> samples(2 * 8 * 8 * 2, 0.5F);
  const std::vector<std::int32_t> labels{0, 2};
  const std::vector<std::int64_t> ids{0, 1};
  EXPECT_GT(
      executor.forward({.count = 2, .samples = samples, .labels = labels, .sample_ids = ids}, true)
          .loss_sum,
      0);
}

TEST_F(LayerList, TheExampleBuilds) {
  const std::string path = test_support::source_directory() + "/models/examples/small.toml";
  const models::ModelOptions options = models::default_options(path);
  EXPECT_EQ(options.sample_shape, (engine::Shape{28, 28, 1}));
  EXPECT_EQ(options.classes, 10);
  EXPECT_NO_THROW(engine::Plan::compile(models::build_model(path, options), {}));
}

// Queries of four heads, keys and values of two, 16 elements each; the output layer is the
// embedding.
TEST_F(LayerList, TheExampleOfLlamaBuilds) {
  const std::string path = test_support::source_directory() + "/models/examples/llama.toml";
  const engine::Graph graph = models::build_model(path, models::default_options(path));
  EXPECT_NO_THROW(engine::Plan::compile(graph, {}));
  const engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  EXPECT_EQ(state.parameter_count(), 65 * 64 + 3 * 64 + 64 * 128 + 64 * 64 + 3 * 64 * 176);
  EXPECT_EQ(engine::parameters_of(graph, engine::ParameterKind::kNorm),
            (std::vector<std::string>{"input_layernorm.weight", "post_attention_layernorm.weight",
                                      "norm.weight"}));
}

TEST_F(LayerList, TheExampleOfTextBuildsWithItsOutputTied) {
  const std::string path = test_support::source_directory() + "/models/examples/text.toml";
  models::ModelOptions options = models::default_options(path);
  EXPECT_EQ(options.sample_shape, (engine::Shape{64}));
  options.sample_shape = {16};  // a shorter context than the positions that it knows
  options.classes = 30;
  const engine::Graph graph = models::build_model(path, options);
  const engine::Plan plan = engine::Plan::compile(graph, {.max_batch = 2});
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 1);
  EXPECT_EQ(state.entries.front().name, "wte.weight");
  EXPECT_EQ(state.entries.back().name, "ln_f.bias");
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 1);
  const std::vector<std::int32_t> tokens(2 * 16, 29), labels(2 * 16, 3);
  const std::vector<std::int64_t> ids{0, 1};
  const engine::BatchResult result = executor.forward(
      {.count = 2, .samples = {}, .tokens = tokens, .labels = labels, .sample_ids = ids}, true);
  EXPECT_EQ(result.rows, 32);
  EXPECT_NEAR(result.loss_sum / 32, std::log(30.0), 0.5);
  executor.backward(1, engine::Write::kOverwrite, {});
}

TEST_F(LayerList, MistakesInModelsOfTextNameTheLine) {
  const auto text_error = [&](const std::string& layers) -> std::string {
    try {
      build("[[layer]]\nkind = \"embedding\"\nname = \"e\"\nvocabulary = \"classes\"\nwidth = 6\n" +
                layers,
            {.sample_shape = {5}, .classes = 3});
    } catch (const engine::Error& error) {
      const std::string message = error.what();
      return message.substr(message.find("m.toml"));
    }
    return "no error";
  };
  EXPECT_VALUES(text_error(""), "m.toml: 'e' (embedding), logits: [5, 3] classes [5, 6]");
  EXPECT_VALUES(text_error("[[layer]]\nkind = \"gelu\"\napproximate = \"erf\"\n"),
                "m.toml:8: 'approximate' \"none\" \"tanh\", \"erf\"");
  EXPECT_EQ(text_error("[[layer]]\nkind = \"causal_self_attention\"\n"),
            "m.toml:6: 'heads' is missing");
  EXPECT_EQ(text_error("[[layer]]\nkind = \"dense\"\nout = 3\ntied = \"f\"\n"),
            "m.toml:9: no layer 'f' before this one: did you mean 'e'?");
  EXPECT_EQ(text_error("[[layer]]\nkind = \"dense\"\nout = 3\ntied = \"e\"\n"),
            "m.toml:6: layer #3 (dense): tied to layer 'e' (embedding), expected its parameters "
            "(weight [3, 6]), got weight [3, 6], "
            "bias [3]");
  EXPECT_EQ(text_error("[[layer]]\nkind = \"dense\"\nout = 3\nbias = false\ntied = \"e\"\n"),
            "no error");
}

TEST_F(LayerList, UnknownKindsAndKeysNameTheNearest) {
  EXPECT_EQ(
      error_of("[[layer]]\nkind = \"convd\"\n"),
      "m.toml:2: unknown kind 'convd': did you mean 'conv2d'? (known: dense, conv2d, "
      "conv_transpose, convolve, resize, pad, batch_norm2d, sync_batch_norm2d, group_norm, "
      "relu, max_pool2d, average_pool2d, pad_channels, shuffle_channels, "
      "global_average_pool, flatten, add, subtract, "
      "dropout, embedding, "
      "position_embedding, layer_norm, rms_norm, gelu, causal_self_attention, "
      "self_attention, matmul, softmax, rotary, head_rms_norm, concat, slice, reshape, permute, "
      "activation, scale_shift, multiply, divide, compare, where, reduce, gather, parameter, "
      "constant)");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"dense\"\nname = \"a\"\nout = 3\nbais = true\n"),
            "m.toml:5: unknown key 'bais' in a layer of kind 'dense': did you mean 'bias'? (known: "
            "kind, name, inputs, "
            "tied, out, bias)");
  EXPECT_EQ(
      error_of("[[layer]]\nkind = \"dense\"\nname = \"a\"\nout = 3\nbais = true\nbias = true\n"),
      "m.toml:5: unknown key 'bais' in a layer of kind 'dense' (known: kind, name, inputs, tied, "
      "out, bias)");
  EXPECT_EQ(error_of("logit = \"a\"\n[[layer]]\nkind = \"relu\"\n"),
            "m.toml:1: unknown key 'logit' in the file: did you mean 'logits'? (known: "
            "sample_shape, input_shape, classes, label_shape, logits, layer, "
            "config_json, file_shapes, transposed)");
}

TEST_F(LayerList, StatesTheLayoutOfTheFileThatItWasMadeOf) {
  const auto layouts = [](const std::string& text) {
    return models::file_layouts("m.onnx", text + "[[layer]]\nkind = \"relu\"\n");
  };
  const models::FileLayouts found = layouts(
      "file_shapes = {\"a.weight\" = [8, 5], \"b.weight\" = []}\n"
      "transposed = [\"a.weight\"]\nclasses = 3\n");
  EXPECT_EQ(found.classes, 3);
  EXPECT_EQ(found.arrays.size(), 2U);
  EXPECT_EQ(found.arrays.at("a.weight").shape, (std::vector<std::int64_t>{8, 5}));
  EXPECT_TRUE(found.arrays.at("a.weight").transposed);
  EXPECT_FALSE(found.arrays.at("b.weight").transposed);
  EXPECT_TRUE(layouts("").arrays.empty());
  EXPECT_VALUES(
      test_support::error_of<engine::ModelError>([&] { layouts("transposed = [\"a.weight\"]\n"); }),
      "m.onnx: 'transposed' 'a.weight', two file_shapes");
}

TEST_F(LayerList, WrongValuesNameTheLine) {
  EXPECT_EQ(error_of("[[layer]]\nkind = \"dense\"\nout = 2.5\n"),
            "m.toml:3: 'out' must be an integer");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"dense\"\nout = \"all\"\n"),
                "m.toml:3: 'out' integer \"classes\"");
  EXPECT_EQ(error_of("[[layer]]\nname = \"a\"\n"), "m.toml:1: 'kind' is missing");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"conv2d\"\nname = \"a\"\n"),
            "m.toml:1: 'out_channels' is missing");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"activation\"\n"), "m.toml:1: 'function' is missing");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"resize\"\nmode = \"nearest\"\nfactor = [2]\n"),
            "m.toml:4: 'factor' must be number or [height, width]");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"resize\"\nmode = \"cubic\"\n"),
            "m.toml:3: unknown mode 'cubic' (known: nearest, bilinear)");
  EXPECT_EQ(
      error_of("[[layer]]\nkind = \"conv2d\"\nname = \"a\"\nout_channels = 3\nkernel = [3, 3, "
               "3]\n"),
      "m.toml:5: 'kernel' must be integer or [height, width]");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"conv2d\"\nname = \"a\"\nout_channels = 3\npadding = "
                         "\"same\"\n"),
                "m.toml:5: 'padding' integer, [height, width] [top, left, bottom, right]");
  EXPECT_VALUES(
      error_of("[[layer]]\nkind = \"activation\"\nfunction = \"sillu\"\n"),
      "m.toml:3: function 'sillu': 'silu'? (known: relu6, silu, sigmoid, hard_sigmoid, hard_swish, "
      "leaky_relu, tanh, exp, log, sqrt, erf, abs, negate, reciprocal, softplus, elu, mish, "
      "softsign, clip, power)");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"conv2d\"\nout_channels = 4\ngroups = 3\n"),
                "m.toml:1: conv2d: out_channels groups, 3, 4");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"dropout\"\nrate = 1.5\n"),
                "m.toml:1: dropout: rate [0, 1), 1.500000");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"batch_norm2d\"\n"), "m.toml:1 #2 batch_norm2d name");
  EXPECT_EQ(error_of("[[layer]]\nkind = \"relu\"\ninputs = [\"inptu\"]\n"),
            "m.toml:3: no layer 'inptu' before this one: did you mean 'input'?");
  EXPECT_VALUES(error_of("[[layer]]\nkind = \"relu\"\ninputs = \"input\"\n"),
                "m.toml:3: 'inputs' list");
  EXPECT_EQ(
      error_of(
          "[[layer]]\nkind = \"relu\"\nname = \"a\"\n[[layer]]\nkind = \"relu\"\nname = \"a\"\n"),
      "m.toml:6: the name 'a' is used twice");
  EXPECT_TRUE(error_of("[[layer]\n").starts_with("m.toml:1: ")) << error_of("[[layer]\n");
  EXPECT_VALUES(error_of("classes = 3\n"), "m.toml: one [[layer]]");
}

TEST_F(LayerList, ShapeErrorsNameTheLineTheLayerAndBothShapes) {
  EXPECT_VALUES(
      error_of<engine::ShapeError>("[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = 3\n"),
      "m.toml 'fc' dense [3] [8, 8, 3]");
  EXPECT_VALUES(
      error_of<engine::ShapeError>(
          "[[layer]]\nkind = \"global_average_pool\"\n[[layer]]\nkind = \"conv2d\"\nname = "
          "\"c\"\nout_channels = 2\n"),
      "m.toml:3 'c' conv2d rank 3 [h, w, c] [2]");
  EXPECT_VALUES(
      error_of<engine::ShapeError>(
          "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = 4\n"),
      "m.toml 'fc' dense [3] [4]");
}

TEST_F(LayerList, IsKnownByItsLinesWhateverItsSpelling) {
  const auto lines = [](const std::string& text) {
    return models::definition_lines("m.toml", text);
  };
  const std::string plain =
      "logits = \"fc\"\n[[layer]]\nkind = \"dropout\"\nrate = 0.5\n[[layer]]\nkind = \"dense\"\n"
      "name = \"fc\"\nout = \"classes\"\n";
  const std::string other =
      "# a comment\nlogits = 'fc'\n[[layer]]\nrate = 0.50\nkind = \"dropout\" # another\n\n"
      "[[layer]]\nkind = \"dense\"\nout = \"classes\"\nname = \"fc\"\n";
  ASSERT_EQ(lines(plain).size(), 3u);
  EXPECT_EQ(lines(plain), lines(other));
  std::string changed = plain;
  changed.replace(changed.find("0.5"), 3, "0.4");
  const auto before = lines(plain), after = lines(changed);
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
  EXPECT_EQ(before[2], after[2]);
  EXPECT_THROW(lines("[[layer]\n"), engine::ModelError);
}

// The loss contains them; numbers of a regression may be what they give.
TEST_F(LayerList, ProbabilitiesAtTheEndAreAnErrorUnlessTheyAreTargets) {
  const std::string dense =
      "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = "
      "\"classes\"\n";
  for (const std::string last :
       {"kind = \"softmax\"\n", "kind = \"activation\"\nfunction = \"sigmoid\"\nname = \"p\"\n"}) {
    const std::string path = write(dense + "[[layer]]\n" + last);
    models::ModelOptions options{.sample_shape = {1, 1, 4}, .classes = 3};
    const auto expect_rejected = [&] {
      try {
        models::build_model(path, options);
        ADD_FAILURE() << last;
      } catch (const engine::ModelError& error) {
        EXPECT_NE(std::string(error.what()).find("expected logits"), std::string::npos)
            << error.what();
      }
    };
    expect_rejected();
    options.regression = engine::ops::RegressionLoss::kLogistic;  // that of several labels
    expect_rejected();
    options.regression = engine::ops::RegressionLoss::kSquared;
    EXPECT_NO_THROW(models::build_model(path, options));
    EXPECT_NO_THROW(models::build_model(write("logits = \"fc\"\n" + dense + "[[layer]]\n" + last),
                                        {.sample_shape = {1, 1, 4}, .classes = 3}));
  }
}

TEST_F(LayerList, MissingFileAndMissingDefaults) {
  EXPECT_THROW(models::build_model(folder_ / "none.toml", {.sample_shape = {1}}),
               engine::ModelError);
  EXPECT_THROW(models::default_options(write("[[layer]]\nkind = \"relu\"\n")), engine::ModelError);
}

}  // namespace
