// `--model net.onnx`: networks of PyTorch, exports of the engine itself, and runs from a file as a
// user meets them. Tests beside PyTorch are skipped where PEER_PYTHON (python3) has no torch,
// torchvision, timm, onnx, onnxscript and onnxruntime.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/graph/executor.h"
#include "engine/train/saving/weights.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "models/onnx_export/onnx_export.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/support/array_numbers.h"
#include "tests/support/command_words.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"
#include "tests/tools/commands/program.h"

namespace {

using onnx_fixture::Network;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;

// Lets torch_networks.py write the files of this network. Returns why not, or "".
std::string missing_after_writing(const std::string& name, const std::string& folder) {
  return onnx_fixture::missing_after_script("torch_networks.py", folder, {name});
}

class TorchNetwork : public testing::TestWithParam<std::string> {};

// Compares the logits of PATH.onnx with those of PATH.npz.
void expect_logits(const std::string& path) {
  Network network(path + ".onnx");
  EXPECT_TRUE(network.left_out.empty());
  const std::vector<io::NamedArray> expected = io::load_arrays(path + ".npz");
  const std::vector<float> input = test_support::numbers_of<float>(expected, "input"),
                           logits = test_support::numbers_of<float>(expected, "logits");
  const std::vector<float> found = onnx_fixture::logits_of_images(
      network.graph, network.state, 2,
      onnx_fixture::channels_last(input, network.options.sample_shape));
  EXPECT_EQ(2 * network.options.classes, std::ssize(logits));
  ASSERT_EQ(found.size(), logits.size());
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(logits[i]));
    difference = std::max(difference, std::abs(found[i] - logits[i]));
  }
  std::printf("%s: largest difference %.2e of the largest logit\n", path.c_str(),
              static_cast<double>(difference / largest));
  EXPECT_GT(largest, 1e-3F);
  EXPECT_LE(difference, 1e-5F * largest);
}

TEST_P(TorchNetwork, GivesTheLogitsOfItsOwnProgram) {
  const test_support::TemporaryDirectory folder;
  const std::string missing = missing_after_writing(GetParam(), folder / ".");
  if (!missing.empty()) GTEST_SKIP() << missing;
  for (const char* exporter : {"_eval", "_train", "_dynamo"}) {
    SCOPED_TRACE(exporter);
    expect_logits(folder / (GetParam() + exporter));
  }
}
INSTANTIATE_TEST_SUITE_P(Torchvision, TorchNetwork,
                         testing::Values("resnet18", "vgg11_bn", "viewed", "rearranged", "frames",
                                         "squeezenet1_1", "densenet", "mobilenet_v2",
                                         "mobilenet_v3_small", "efficientnet_b0", "regnet_y_400mf",
                                         "googlenet", "shufflenet_v2_x0_5", "gates", "convnext",
                                         "mixer", "encoder", "vit", "swin", "unet", "unet_resized",
                                         "autoencoder", "norms", "windows", "choosing", "parts",
                                         "standardized", "nfnet", "coatnet", "swin_v2"),
                         [](const auto& test) { return test_support::test_name(test.param); });

class TimmNetwork : public testing::TestWithParam<std::string> {};

TEST_P(TimmNetwork, GivesTheLogitsOfOnnxruntime) {
  const test_support::TemporaryDirectory folder;
  const std::string missing = missing_after_writing(GetParam(), folder / ".");
  if (!missing.empty()) GTEST_SKIP() << missing;
  expect_logits(folder / (GetParam() + "_eval"));
}
INSTANTIATE_TEST_SUITE_P(
    Timm, TimmNetwork,
    testing::Values("resnet26", "resnet26d", "regnetx_002", "resnest14d", "skresnet18",
                    "eca_resnet33ts", "res2net50_26w_4s", "repvgg_a0", "dla46_c", "densenet121",
                    "inception_v3", "efficientnet_lite0", "tf_efficientnet_lite0",
                    "mobilenetv3_small_050", "ghostnet_100", "rexnet_100", "convnext_atto",
                    "poolformer_s12", "mobilevit_xxs", "fastvit_t8", "efficientvit_b0",
                    "vit_tiny_patch16_224", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224",
                    "mixer_s32_224", "levit_128s", "efficientformer_l1", "crossvit_tiny_240",
                    "pvt_v2_b0", "pit_ti_224", "xcit_nano_12_p16_224", "cait_xxs24_224",
                    "edgenext_xx_small", "maxvit_nano_rw_256", "maxvit_rmlp_pico_rw_256",
                    "botnet26t_256", "tnt_s_patch16_224"),
    [](const auto& test) { return test.param; });

// Operators as other programs write them.
class OnnxGraphs : public testing::TestWithParam<std::string> {};

TEST_P(OnnxGraphs, GiveTheNumbersOfOnnxruntime) {
  const test_support::TemporaryDirectory folder;
  const std::string missing = missing_after_writing(GetParam(), folder / ".");
  if (!missing.empty()) GTEST_SKIP() << missing;
  expect_logits(folder / GetParam());
}
INSTANTIATE_TEST_SUITE_P(Operators, OnnxGraphs,
                         testing::Values("auto_pad", "pools", "pads", "resized", "choices",
                                         "products", "einsums"),
                         [](const auto& test) { return test.param; });

// Plain SGD in float64, in training mode: batch statistics, and gradients of all layers.
class TorchTrace : public testing::TestWithParam<std::string> {};

TEST_P(TorchTrace, TwentyStepsHaveItsLosses) {
  const test_support::TemporaryDirectory folder;
  const std::string missing = missing_after_writing(GetParam(), folder / ".");
  if (!missing.empty()) GTEST_SKIP() << missing;
  const std::vector<io::NamedArray> expected = io::load_arrays(folder / (GetParam() + ".npz"));
  const auto targets = test_support::numbers_of<float>(expected, "targets");
  Network network(folder / (GetParam() + ".onnx"), engine::DType::kF64, !targets.empty());
  const auto batches = test_support::numbers_of<float>(expected, "batches");
  const auto labels = test_support::numbers_of<std::int64_t>(expected, "labels");
  const auto losses = test_support::numbers_of<double>(expected, "losses");
  const double rate = test_support::numbers_of<double>(expected, "rate").at(0);
  ASSERT_EQ(losses.size(), 20U);
  const std::size_t batch = labels.size() / losses.size();
  const auto item = static_cast<std::size_t>(network.options.sample_shape.count());
  const engine::Plan plan =
      engine::Plan::compile(network.graph, {.max_batch = static_cast<std::int64_t>(batch),
                                            .dtype = engine::DType::kF64,
                                            .threads = 1,
                                            .training = true});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, network.state, threads, 0);
  double largest = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const auto first = batches.begin() + static_cast<std::ptrdiff_t>(step * batch * item);
    const std::vector<float> samples = onnx_fixture::channels_last(
        {first, first + static_cast<std::ptrdiff_t>(batch * item)}, network.options.sample_shape);
    const std::vector<std::int32_t> classes(
        labels.begin() + static_cast<std::ptrdiff_t>(step * batch),
        labels.begin() + static_cast<std::ptrdiff_t>((step + 1) * batch));
    const std::vector<std::int64_t> ids(batch);
    engine::BatchView view{.count = static_cast<std::int64_t>(batch),
                           .samples = samples,
                           .labels = classes,
                           .sample_ids = ids};
    if (!targets.empty()) {
      const std::size_t count = targets.size() / losses.size();
      view.labels = {};
      view.targets = std::span(targets).subspan(step * count, count);
    }
    const engine::BatchResult result = executor.forward(view, true);
    executor.backward(1.0 / static_cast<double>(batch), engine::Write::kOverwrite, {});
    const auto values = network.state.parameters.values.span<double>();
    const auto gradients = network.state.parameters.gradients.span<double>();
    for (std::size_t i = 0; i < gradients.size(); ++i) values[i] -= rate * gradients[i];
    largest =
        std::max(largest, std::abs(result.loss_sum / static_cast<double>(batch) - losses[step]));
  }
  std::printf("%s: largest difference of 20 losses: %.2e\n", GetParam().c_str(), largest);
  EXPECT_LE(largest, 1e-9);
}
INSTANTIATE_TEST_SUITE_P(Networks, TorchTrace,
                         testing::Values("trace", "trace_mobilenet_v2", "trace_efficientnet_b0",
                                         "trace_convnext", "trace_vit", "trace_swin", "trace_unet",
                                         "trace_unet_resized", "trace_autoencoder", "trace_norms",
                                         "trace_windows", "trace_rearranged", "trace_frames",
                                         "trace_choosing", "trace_parts", "trace_standardized",
                                         "trace_standardized_plain", "trace_nfnet", "trace_trained",
                                         "trace_buffers", "trace_reused", "trace_reused_plain",
                                         "trace_fresh", "trace_fresh_legacy", "trace_fresh_folded",
                                         "trace_merged", "trace_merged_norms"),
                         [](const auto& test) { return test.param; });

class TorchNames : public testing::TestWithParam<std::string> {};

// A trained network returns to PyTorch by the lines of docs/onnx-models.md.
TEST_P(TorchNames, AllParametersReturnToTheModel) {
  const test_support::TemporaryDirectory folder;
  const std::string missing = missing_after_writing(GetParam(), folder / ".");
  if (!missing.empty()) GTEST_SKIP() << missing;
  const std::string run = folder / "run";
  expect_success(test_support::engine(program::quick_train(
      argv("--synthetic-shape", GetParam().starts_with("trace_reused") ? "6x8x3" : "8x8x3",
           "--synthetic-classes 7 --steps 1 --lr 0.1 --save-dir", run, "--model",
           folder / (GetParam() + ".onnx")))));
  expect_success(call("export", run, "-o", folder / "model.pth"));
  const CommandResult loaded = test_support::run_command(
      {onnx_fixture::peer_python(),
       test_support::source_directory() + "/tests/tools/commands/onnx/torch_networks.py",
       folder / ".", "load:" + GetParam()},
      {}, 600'000);
  EXPECT_EQ(loaded.exit_code, 0) << loaded.out << loaded.err;
  EXPECT_CONTAINS(loaded.out, "attention.in_proj_weight loaded");
  EXPECT_EQ(loaded.out.find("kept"), std::string::npos) << loaded.out;
}
INSTANTIATE_TEST_SUITE_P(Networks, TorchNames,
                         testing::Values("trace_fresh", "trace_fresh_legacy", "trace_merged",
                                         "trace_merged_norms", "trace_reused",
                                         "trace_reused_plain"),
                         [](const auto& test) { return test.param; });

struct OwnExport {
  std::string model;
  engine::Shape sample;
};

class OwnExportTest : public testing::TestWithParam<OwnExport> {};

// What the engine exports comes back with the same names, bits and logits.
TEST_P(OwnExportTest, ComesBackBitByBit) {
  const auto& [model, sample] = GetParam();
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.onnx";
  const engine::Graph graph = models::build_model(model, {.sample_shape = sample, .classes = 10});
  engine::ModelState state = onnx_fixture::random_state(graph);
  const std::vector<io::NamedArray> arrays = engine::export_state(state, {});
  io::save_onnx(models::onnx_model(graph, arrays), path);
  Network again(path);
  std::size_t found = 0;
  for (const io::NamedArray& array : engine::export_state(again.state, {}))
    for (const io::NamedArray& old : arrays)
      if (old.name == array.name && old.type != io::DType::kI64) {
        EXPECT_EQ(old.shape, array.shape) << old.name;
        EXPECT_EQ(old.data, array.data) << old.name;
        ++found;
      }
  EXPECT_EQ(found, static_cast<std::size_t>(std::ranges::count_if(
                       arrays, [](const auto& array) { return array.type != io::DType::kI64; })));
  const std::vector<float> samples = onnx_fixture::random_samples(3 * sample.count(), 1);
  EXPECT_EQ(onnx_fixture::logits_of_images(graph, state, 3, samples),
            onnx_fixture::logits_of_images(again.graph, again.state, 3, samples));
}
INSTANTIATE_TEST_SUITE_P(
    Families, OwnExportTest,
    testing::Values(OwnExport{"mlp", {28, 28, 1}}, OwnExport{"mlp", {1, 1, 13}},
                    OwnExport{"convnet", {28, 20, 3}}, OwnExport{"resnet18", {65, 64, 3}},
                    OwnExport{"resnet50", {64, 64, 3}}, OwnExport{"resnet18-cifar", {32, 32, 3}},
                    OwnExport{"resnet20-cifar", {32, 31, 3}},
                    OwnExport{"pyramidnet110", {16, 16, 3}}),
    [](const auto& test) {
      return test_support::test_name(test.param.model) + "_" + std::to_string(test.index);
    });

// A patch embedding, attention, and a gate that positions share, as no fixed model has them.
const std::string kGeneralNet = test_support::layers_toml(R"(
conv2d stem out_channels=12 kernel=4 stride=4
reshape patches shape=[-1,12]
parameter positions shape=[1,6,12]
reshape rows shape=[6,12]
add start inputs=["patches","rows"]
layer_norm norm
dense qkv out=36
self_attention heads=3
dense proj out=12
add mixed inputs=["proj","start"]
permute order=[1,0]
dense tokens out=6
gelu
permute back order=[1,0]
multiply inputs=["back","mixed"]
reduce function=mean axes=[0]
dense fc out=classes
)");

// Parameters have the same bits; attention and GELU are recognized in their expressions.
TEST(GeneralExport, ComesBackWithItsLayers) {
  const test_support::TemporaryDirectory folder;
  const std::string list = folder / "general.toml", path = folder / "m.onnx";
  test_support::write_text(list, kGeneralNet);
  const engine::Shape sample{8, 12, 3};
  const engine::Graph graph = models::build_model(list, {.sample_shape = sample, .classes = 10});
  engine::ModelState state = onnx_fixture::random_state(graph);
  const std::vector<io::NamedArray> arrays = engine::export_state(state, {});
  io::save_onnx(models::onnx_model(graph, arrays), path);
  const std::string definition = models::model_definition(path);
  EXPECT_CONTAINS(definition, "kind = \"self_attention\"");
  EXPECT_CONTAINS(definition, "kind = \"gelu\"");
  EXPECT_EQ(definition.find("\"matmul\""), std::string::npos) << definition;
  Network again(path);
  std::size_t found = 0;
  for (const io::NamedArray& array : engine::export_state(again.state, {}))
    for (const io::NamedArray& old : arrays)
      if (old.name == array.name) {
        EXPECT_EQ(old.shape, array.shape) << old.name;
        EXPECT_EQ(old.data, array.data) << old.name;
        ++found;
      }
  EXPECT_EQ(found, arrays.size());
  const std::vector<float> samples = onnx_fixture::random_samples(3 * sample.count(), 1),
                           before = onnx_fixture::logits_of_images(graph, state, 3, samples),
                           after =
                               onnx_fixture::logits_of_images(again.graph, again.state, 3, samples);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-5F);
}

// The data set's preparation normalizes pixels, so the nodes that do it are left out.
void expect_pixels_back(const std::string& network, const engine::Shape& sample) {
  const test_support::TemporaryDirectory folder;
  const std::string prepared = folder / "prepared.onnx", pixels = folder / "pixels.onnx";
  const engine::Graph graph = models::build_model(network, {.sample_shape = sample, .classes = 4});
  const engine::ModelState state = onnx_fixture::random_state(graph);
  const std::vector<io::NamedArray> arrays = engine::export_state(state, {});
  const auto save = [&](io::OnnxModel model, const std::string& path) {
    model.producer = "engine";
    model.metadata = {{"input", path == pixels ? "pixels" : "prepared"}};
    io::save_onnx(model, path);
  };
  save(models::onnx_model(graph, arrays), prepared);
  const models::PixelScaling scalings[] = {{}, {.mean = {1, 2, 3}, .deviation = {4, 5, 6}}};
  for (const models::PixelScaling& scaling : scalings) {
    io::OnnxModel model = models::onnx_model(graph, arrays, scaling);
    save(model, pixels);
    models::DefinitionNotes notes;
    EXPECT_EQ(models::model_definition(pixels, &notes), models::model_definition(prepared));
    ASSERT_FALSE(notes.lines.empty());
    EXPECT_VALUES(notes.lines[0], "normalization pixels left out");
    const std::vector<io::NamedArray> a = models::model_weights(pixels).arrays,
                                      b = models::model_weights(prepared).arrays;
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].data, b[i].data) << a[i].name;
    model.nodes[0].type = "Mul";
    save(model, pixels);
    EXPECT_CONTAINS(test_support::error_or<engine::ModelError>(
                        [&] { models::model_definition(pixels); }, "no error"),
                    "export it with --input prepared");
  }
}

// A parameter is expanded to the number of samples, which is read from the pixels.
TEST(PixelExport, ComesBackAsThatOfPreparedImages) {
  expect_pixels_back("convnet", {8, 8, 3});
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "general.toml", kGeneralNet);
  expect_pixels_back(folder / "general.toml", {8, 12, 3});
}

TEST(SoftmaxAtTheEnd, IsRejectedForOtherLossesThanThatOfClasses) {
  const test_support::TemporaryDirectory folder;
  const std::string net = folder / "net.onnx";
  io::OnnxModel model;
  model.inputs = {{.name = "x", .shape = {"batch", 2}}};
  model.outputs = {{.name = "y", .shape = {"batch", 3}}};
  model.nodes = {{"Gemm", "/fc/Gemm", {"x", "fc.weight"}, {"z"}, {{"transB", std::int64_t{1}}}},
                 {"Softmax", "/Softmax", {"z"}, {"y"}, {{"axis", std::int64_t{1}}}}};
  model.constants = {onnx_fixture::floats("fc.weight", {1, 2, 3, 4, 5, 6}, {3, 2})};
  io::save_onnx(model, net);
  for (const char* task : {"multi-label", "regression"})
    program::expect_error(call("train --dataset csv --label-column a,b --annotations",
                               folder / "t.csv", "--task", task, "--model", net),
                          78, net + " softmax --task " + task);
}

class OnnxRun : public testing::Test {
 protected:
  void SetUp() override {
    expect_success(train("first", argv("--model resnet20-cifar")));
    expect_success(call("export", folder_ / "first", "-o", net_));
  }
  CommandResult train(const std::string& run, const std::vector<std::string>& more) {
    return test_support::engine(program::quick_train(test_support::overridden(
        argv("--synthetic-shape 12x12x2 --save-dir", folder_ / run), more)));
  }
  static void expect_same_arrays(const std::string& a, const std::string& b) {
    expect_success(call("verify", a, b));
  }

  const test_support::TemporaryDirectory folder_;
  const std::string net_ = folder_ / "net.onnx";
};

TEST_F(OnnxRun, GoesOnWithoutTheFile) {
  const CommandResult begun = expect_success(train("whole", argv("--steps 6 --model", net_)));
  EXPECT_CONTAINS(begun.out + begun.err, "weights from " + net_);
  expect_success(train("part", argv("--steps 3 --model", net_)));
  std::filesystem::remove(net_);
  expect_success(call("train --resume", folder_ / "part", "--steps 6"));
  expect_same_arrays(folder_ / "whole/step-00000006.ckpt", folder_ / "part/step-00000006.ckpt");
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "part")).out, "accuracy");
  expect_success(call("export", folder_ / "part", "-o", folder_ / "again.onnx"));
  EXPECT_TRUE(models::model_definition(folder_ / "again.onnx").starts_with("sample_shape = [12"));
}

TEST_F(OnnxRun, StartsFromTheWeightsOfTheFile) {
  expect_success(train("started", argv("--steps 1 --lr 1e-30 --model", net_)));
  const CommandResult same =
      call("verify --only params --rtol 0 --atol 1e-20", folder_ / "first/step-00000005.ckpt",
           folder_ / "started/step-00000001.ckpt");
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

TEST_F(OnnxRun, TwoRanksHaveTheBitsOfOne) {
  const auto exact = argv("--steps 4 --reduction-order canonical --sync-bn --model", net_);
  expect_success(train("one", exact));
  expect_success(train("two", test_support::overridden(exact, argv("--spawn 2"))));
  expect_same_arrays(folder_ / "one/step-00000004.ckpt", folder_ / "two/step-00000004.ckpt");
}

// A depthwise convolution, and squeeze and excitation.
const std::string kGatedNet = test_support::layers_toml(R"(
conv2d stem out_channels=12 padding=1
batch_norm2d norm
activation function=relu6
conv2d depthwise out_channels=12 stride=2 padding=1 groups=12
activation image function=silu
global_average_pool
dense excite out=12
activation scales function=sigmoid
multiply inputs=["image","scales"]
conv2d pairs out_channels=18 padding=1 groups=6
activation function=hard_swish
global_average_pool
dense fc out=classes
)");

// Ranks, threads, a resumed run, and an export that is read back do not change the bits.
TEST_F(OnnxRun, GroupsAndGatesHaveTheSameBitsAnyway) {
  const std::string net = folder_ / "gated.toml";
  test_support::write_text(net, kGatedNet);
  const auto exact = argv("--steps 4 --reduction-order canonical --sync-bn --model", net);
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    expect_success(train(name, test_support::overridden(exact, more)));
  };
  run("one", argv("--threads 1"));
  run("two", argv("--spawn 2 --threads 1"));
  run("threads", argv("--threads 3"));
  run("part", argv("--threads 1 --steps 2"));
  expect_success(call("train --resume", folder_ / "part", "--steps 4"));
  for (const char* other : {"two", "threads", "part"})
    expect_same_arrays(folder_ / "one/step-00000004.ckpt",
                       folder_ / (std::string(other) + "/step-00000004.ckpt"));
  const std::string file = folder_ / "gated.onnx";
  expect_success(call("export", folder_ / "one", "-o", file));
  expect_success(train("again", argv("--steps 1 --lr 1e-30 --model", file)));
  const CommandResult same =
      call("verify --only params --rtol 0 --atol 1e-20", folder_ / "one/step-00000004.ckpt",
           folder_ / "again/step-00000001.ckpt");
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

// Attention and general layers as well.
TEST_F(OnnxRun, GeneralLayersHaveTheSameBitsAnyway) {
  const std::string net = folder_ / "general.toml";
  test_support::write_text(net, kGeneralNet);
  const auto exact =
      argv("--synthetic-shape 8x12x3 --steps 4 --reduction-order canonical --model", net);
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    expect_success(train(name, test_support::overridden(exact, more)));
  };
  run("one", argv("--threads 1"));
  run("two", argv("--spawn 2 --threads 1"));
  run("threads", argv("--threads 3"));
  run("part", argv("--threads 1 --steps 2"));
  expect_success(call("train --resume", folder_ / "part", "--steps 4"));
  for (const char* other : {"two", "threads", "part"})
    expect_same_arrays(folder_ / "one/step-00000004.ckpt",
                       folder_ / (std::string(other) + "/step-00000004.ckpt"));
}

TEST_F(OnnxRun, OtherClassesReplaceTheLastLayer) {
  const CommandResult result =
      expect_success(train("other", argv("--steps 2 --synthetic-classes 4 --model", net_)));
  EXPECT_CONTAINS(result.out + result.err,
                  "but for linear.weight ([10, 64] there, the model has [4, 64]), linear.bias");
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "other")).out, "accuracy");
}

TEST_F(OnnxRun, WhatCannotBeReadIsOneLine) {
  test_support::write_text(net_, test_support::read_text(net_).substr(0, 1000));
  program::expect_error(train("damaged", argv("--model", net_)), 65, net_ + ": at byte ");
  program::expect_error(train("missing", argv("--model", folder_ / "no.onnx")), 65, "no.onnx");
}

}  // namespace
