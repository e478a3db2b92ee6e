// Networks of PyTorch that read token ids: their logits, steps and exports. Skipped where
// PEER_PYTHON has no torch, onnx, onnxscript and onnxruntime (for two networks, transformers).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/graph/executor.h"
#include "engine/train/saving/weights.h"
#include "io/interchange/array_files.h"
#include "io/interchange/numpy/npz.h"
#include "models/model_catalog.h"
#include "models/onnx_export/onnx_export.h"
#include "tests/support/array_numbers.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"
#include "tests/tools/commands/program.h"

namespace {

using onnx_fixture::Network;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;

std::vector<std::int32_t> ids_of(const std::vector<io::NamedArray>& arrays,
                                 const std::string& name) {
  const std::vector<std::int64_t> wide = test_support::numbers_of<std::int64_t>(arrays, name);
  return {wide.begin(), wide.end()};
}

std::string count_of_kind(const std::string& definition, const std::string& kind) {
  std::size_t count = 0;
  const std::string line = "kind = \"" + kind + "\"";
  for (std::size_t at = definition.find(line); at != std::string::npos;
       at = definition.find(line, at + 1))
    ++count;
  return kind + " " + std::to_string(count);
}

class TextNetworks : public testing::TestWithParam<std::string> {
 protected:
  // Lets the script write the files of this network; skips the test if it cannot.
  void write(const std::string& name, const std::vector<std::string>& exporters = {}) {
    std::vector<std::string> words{name};
    words.insert(words.end(), exporters.begin(), exporters.end());
    const std::string missing =
        onnx_fixture::missing_after_script("torch_tokens.py", folder_ / ".", words);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  struct Expected {
    std::vector<std::int32_t> ids;
    std::vector<float> logits;
  };
  Expected expected_logits() const {
    const std::vector<io::NamedArray> arrays = io::load_arrays(folder_ / (GetParam() + ".npz"));
    return {ids_of(arrays, "input"), test_support::numbers_of<float>(arrays, "logits")};
  }
  static void expect_logits(const std::string& path, const Expected& expected) {
    const auto& [ids, logits] = expected;
    Network network(path);
    EXPECT_TRUE(network.left_out.empty());
    const std::vector<float> found =
        onnx_fixture::logits_of_tokens(network.graph, network.state, 2, ids);
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
  const test_support::TemporaryDirectory folder_;
};

TEST_P(TextNetworks, GiveTheLogitsOfPyTorch) {
  write(GetParam());
  if (IsSkipped()) return;
  const Expected expected = expected_logits();
  for (const char* exporter : {"_eval", "_train", "_dynamo", "_plain", "_set23"}) {
    SCOPED_TRACE(exporter);
    const std::string path = folder_ / (GetParam() + exporter + ".onnx");
    expect_logits(path, expected);
    const std::string definition = models::model_definition(path);
    if (GetParam().starts_with("decoder"))
      EXPECT_EQ(count_of_kind(definition, "causal_self_attention"), "causal_self_attention 2");
    if (GetParam() == "classifier")
      EXPECT_EQ(count_of_kind(definition, "self_attention"), "self_attention 2");
    EXPECT_EQ(definition.find("tied = ") != std::string::npos,
              GetParam().starts_with("decoder") && GetParam() != "decoder_untied");
  }
}

// Arrays and logits of the network that is exported and read again.
TEST_P(TextNetworks, AreReadBackBitByBit) {
  write(GetParam(), {"train"});
  if (IsSkipped()) return;
  const std::string path = folder_ / "again.onnx";
  Network network(folder_ / (GetParam() + "_train.onnx"));
  const std::vector<io::NamedArray> arrays = engine::export_state(network.state, {});
  io::OnnxModel model = models::onnx_model(network.graph, arrays);
  model.name = "texts";
  model.producer = "engine";
  io::save_onnx(model, path);
  Network again(path);
  const std::vector<io::NamedArray> other = engine::export_state(again.state, {});
  for (const io::NamedArray& array : arrays) {
    const auto same = std::ranges::find(other, array.name, &io::NamedArray::name);
    ASSERT_NE(same, other.end()) << array.name;
    EXPECT_EQ(same->data, array.data) << array.name;
  }
  const std::int64_t length = network.options.sample_shape[0];
  const std::vector<std::int32_t> ids = onnx_fixture::random_tokens(3 * length, 23, 1);
  const std::vector<float> logits =
      onnx_fixture::logits_of_tokens(network.graph, network.state, 3, ids);
  EXPECT_EQ(logits, onnx_fixture::logits_of_tokens(again.graph, again.state, 3, ids));
  std::vector<std::int64_t> shape{3, network.options.classes};
  if (GetParam().starts_with("decoder")) shape.insert(shape.begin() + 1, length);
  onnx_fixture::expect_equal_in_onnxruntime(path,
                                            {onnx_fixture::integers("text.input", ids, {3, length}),
                                             onnx_fixture::floats("text.logits", logits, shape)});
}
INSTANTIATE_TEST_SUITE_P(Torch, TextNetworks,
                         testing::Values("classifier", "first_token", "decoder", "decoder_masked",
                                         "decoder_untied", "text_cnn", "distilbert", "bert"),
                         [](const auto& test) { return test.param; });

// Attention and RMSNormalization of operator set 23.
class SetOf23 : public TextNetworks {};

TEST_P(SetOf23, GivesTheLogitsOfPyTorch) {
  write(GetParam(), {"set23", "set23_plain"});
  if (IsSkipped()) return;
  for (const char* exporter : {"set23", "set23_plain"}) {
    SCOPED_TRACE(exporter);
    const std::string path = folder_ / (GetParam() + "_" + exporter + ".onnx");
    expect_logits(path, expected_logits());
    EXPECT_EQ(count_of_kind(models::model_definition(path), "rms_norm"),
              GetParam() == "decoder_boolean" ? "rms_norm 1" : "rms_norm 2");
    if (GetParam() == "decoder_apart")
      EXPECT_EQ(count_of_kind(models::model_definition(path), "causal_self_attention"),
                "causal_self_attention 1");
  }
}
INSTANTIATE_TEST_SUITE_P(Torch, SetOf23,
                         testing::Values("decoder_apart", "decoder_grouped", "decoder_scaled",
                                         "decoder_boolean", "decoder_grouped_rows"),
                         [](const auto& test) { return test.param; });

// Plain SGD in float64.
class TextTraces : public TextNetworks {};

TEST_P(TextTraces, TwentyStepsHaveItsLosses) {
  const std::string name = "trace_" + GetParam();
  write(name);
  if (IsSkipped()) return;
  const std::vector<io::NamedArray> expected = io::load_arrays(folder_ / (name + ".npz"));
  Network network(folder_ / (name + ".onnx"), engine::DType::kF64);
  const std::vector<std::int32_t> ids = ids_of(expected, "batches"),
                                  labels = ids_of(expected, "labels");
  const auto losses = test_support::numbers_of<double>(expected, "losses");
  const double rate = test_support::numbers_of<double>(expected, "rate").at(0);
  ASSERT_EQ(losses.size(), 20U);
  const auto length = static_cast<std::size_t>(network.options.sample_shape[0]);
  const std::size_t batch = ids.size() / losses.size() / length,
                    labels_per_step = labels.size() / losses.size();
  const engine::Plan plan =
      engine::Plan::compile(network.graph, {.max_batch = static_cast<std::int64_t>(batch),
                                            .dtype = engine::DType::kF64,
                                            .threads = 1,
                                            .training = true});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, network.state, threads, 0);
  const std::vector<std::int64_t> sample_ids(batch);
  double largest = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const engine::BatchResult result = executor.forward(
        {.count = static_cast<std::int64_t>(batch),
         .samples = {},
         .tokens = std::span(ids).subspan(step * batch * length, batch * length),
         .labels = std::span(labels).subspan(step * labels_per_step, labels_per_step),
         .sample_ids = sample_ids},
        true);
    executor.backward(1.0 / static_cast<double>(labels_per_step), engine::Write::kOverwrite, {});
    const auto values = network.state.parameters.values.span<double>();
    const auto gradients = network.state.parameters.gradients.span<double>();
    for (std::size_t i = 0; i < gradients.size(); ++i) values[i] -= rate * gradients[i];
    largest = std::max(
        largest, std::abs(result.loss_sum / static_cast<double>(labels_per_step) - losses[step]));
  }
  std::printf("%s: largest difference of 20 losses: %.2e\n", name.c_str(), largest);
  EXPECT_LE(largest, 1e-9);
}
INSTANTIATE_TEST_SUITE_P(Torch, TextTraces,
                         testing::Values("classifier", "first_token", "decoder", "decoder_masked",
                                         "decoder_untied", "decoder_grouped", "decoder_boolean",
                                         "text_cnn", "distilbert", "bert"),
                         [](const auto& test) { return test.param; });

// A network of an embedding, a mean and a matrix, on arrays of token ids.
class TextRun : public testing::Test {
 protected:
  static constexpr std::int64_t kLength = 6, kVocabulary = 9, kClasses = 3;

  void SetUp() override {
    io::OnnxModel model;
    model.inputs = {{.name = "ids", .type = io::DType::kI64, .shape = {"batch", kLength}}};
    model.outputs = {{.name = "y", .shape = {"batch", kClasses}}};
    model.nodes = {
        {"Gather", "/embedding/Gather", {"embedding.weight", "ids"}, {"rows"}, {}},
        {"ReduceMean",
         "/ReduceMean",
         {"rows"},
         {"mean"},
         {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}}},
        {"Gemm", "/fc/Gemm", {"mean", "fc.weight"}, {"y"}, {{"transB", std::int64_t{1}}}}};
    model.constants = {
        onnx_fixture::floats("embedding.weight", onnx_fixture::random_samples(kVocabulary * 4, 1),
                             {kVocabulary, 4}),
        onnx_fixture::floats("fc.weight", onnx_fixture::random_samples(kClasses * 4, 2),
                             {kClasses, 4})};
    io::save_onnx(model, net_);
    save("train", 24, kLength, kClasses);
    save("test", 8, kLength, kClasses);
  }
  void save(const std::string& part, std::int64_t count, std::int64_t length, std::int64_t classes,
            std::int32_t last = 0) {
    std::vector<std::int32_t> x = onnx_fixture::random_tokens(count * length, kVocabulary, 3),
                              y = onnx_fixture::random_tokens(count, classes, 4);
    y[0] = static_cast<std::int32_t>(classes - 1);
    if (last > 0) x.back() = last;
    io::save_npz(
        {onnx_fixture::integers("x", x, {count, length}), onnx_fixture::integers("y", y, {count})},
        folder_ / (part + ".npz"));
  }
  CommandResult train(const std::string& run, const std::vector<std::string>& more = {}) {
    return test_support::engine(test_support::overridden(
        argv("train --dataset arrays --batch-size 6 --steps 8 --lr 0.1 --reduction-order canonical "
             "--data-dir",
             folder_ / ".", "--model", net_, "--save-dir", folder_ / run),
        more));
  }

  const test_support::TemporaryDirectory folder_;
  const std::string net_ = folder_ / "net.onnx";
};

TEST_F(TextRun, HasTheSameBitsOnTwoRanksAndAfterAResumption) {
  expect_success(train("one"));
  expect_success(train("two", argv("--spawn 2")));
  expect_success(train("part", argv("--steps 3")));
  std::filesystem::remove(net_);
  expect_success(call("train --resume", folder_ / "part", "--steps 8"));
  for (const char* other : {"two", "part"})
    expect_success(call("verify", folder_ / "one/step-00000008.ckpt",
                        folder_ / (std::string(other) + "/step-00000008.ckpt")));
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "one")).out, "accuracy");
  expect_success(call("export", folder_ / "one/step-00000008.ckpt", "-o", folder_ / "again.onnx"));
  expect_success(train("again", argv("--steps 1 --lr 1e-30 --model", folder_ / "again.onnx")));
  expect_success(call("verify --only params --rtol 0 --atol 1e-20",
                      folder_ / "one/step-00000008.ckpt", folder_ / "again/step-00000001.ckpt"));
}

TEST_F(TextRun, OtherClassesReplaceTheLastLayer) {
  save("train", 24, kLength, 5);
  save("test", 8, kLength, 5);
  const CommandResult result = expect_success(train("other"));
  EXPECT_CONTAINS(result.out + result.err,
                  "but for fc.weight ([3, 4] there, the model has [5, 4])");
}

TEST_F(TextRun, DataThatDoNotFitAreOneLine) {
  save("train", 24, kLength, kClasses, 9);
  program::expect_error(train("large"), 65, "9 tokens 0 8");
  save("train", 24, kLength + 1, kClasses);
  save("test", 8, kLength + 1, kClasses);
  program::expect_error(train("long"), 78, net_ + ": 6 token ids 7");
  program::expect_error(
      test_support::engine(program::quick_train(argv("--synthetic-shape 8x8x1 --model", net_))), 78,
      net_ + ": 6 token ids [8, 8, 1]");
}

}  // namespace
