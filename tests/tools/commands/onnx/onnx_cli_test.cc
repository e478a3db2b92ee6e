// `engine export` to ONNX as a user meets it: of a run, of a checkpoint, of another program's
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>

#include "engine/train/saving/weights.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tests/io/base/formats/protobuf_reader.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using program::expect_error;
using protobuf_reader::Message;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;

class OnnxExport : public testing::Test {
 protected:
  void train(const std::vector<std::string>& more) {
    const CommandResult result = expect_success(engine(program::quick_train(more)));
  }
  // The model that is written by these arguments, or a failed test.
  Message exported(std::vector<std::string> arguments, const std::string& words = "") {
    arguments.insert(arguments.begin(), "export");
    arguments.insert(arguments.end(), {"-o", file_});
    const CommandResult result = expect_success(engine(arguments));
    EXPECT_CONTAINS(result.out, words);
    return Message(result.exit_code == 0 ? test_support::read_text(file_) : "");
  }
  static std::map<std::string, std::string> metadata(const Message& model) {
    std::map<std::string, std::string> entries;
    for (const Message& entry : model.messages(14))
      entries[entry.one(1).bytes] = entry.one(2).bytes;
    return entries;
  }

  test_support::TemporaryDirectory folder_;
  const std::string run_ = folder_ / "run", file_ = folder_ / "m.onnx";
};

TEST_F(OnnxExport, OfARunSaysWhereItComesFrom) {
  train(argv("--model convnet --synthetic-shape 12x10x3 --save-dir", run_));
  const Message model =
      exported({run_},
               "input float32 [batch, 3, 12, 10] (normalized as in training) -> logits "
               "float32 [batch, 10]");
  EXPECT_EQ(model.one(2).bytes, "engine");
  auto about = metadata(model);
  EXPECT_NE(test_support::read_text(run_ + "/run.json").find('"' + about["run_id"] + '"'),
            std::string::npos);
  EXPECT_EQ(about["model"], "convnet");
  EXPECT_EQ(about["dataset"], "synthetic");
  EXPECT_EQ(about["step"], "5");
  EXPECT_EQ(about["classes"], "10");
  EXPECT_EQ(about["normalization"], "standard");
  EXPECT_EQ(about["input"], "prepared");
}

TEST_F(OnnxExport, PixelsGiveTheLogitsOfPreparedSamples) {
  const std::string missing = onnx_fixture::python_is_missing();
  if (!missing.empty()) GTEST_SKIP() << missing;
  train(argv("--model convnet --synthetic-shape 12x10x3 --save-dir", run_));
  auto about = metadata(exported({run_, "--input", "pixels"}, "(pixels from 0 to 255)"));
  EXPECT_EQ(about["input"], "pixels");
  const auto numbers = [&](const std::string& key) {
    std::vector<double> list;
    std::string text = about[key];
    for (char& c : text)
      if (c == '[' || c == ']' || c == ',') c = ' ';
    std::istringstream words(text);
    for (double number = 0; words >> number;) list.push_back(number);
    return list;
  };
  const std::vector<double> mean = numbers("mean"), deviation = numbers("deviation");
  ASSERT_EQ(mean.size(), 3U);
  ASSERT_EQ(deviation.size(), 3U);

  const ::engine::Shape item{12, 10, 3};
  const ::engine::Graph graph =
      models::build_model("convnet", {.sample_shape = item, .classes = 10});
  ::engine::ModelState state = ::engine::ModelState::allocate(graph, ::engine::DType::kF32);
  ::engine::import_state(io::load_arrays(io::find_newest_checkpoint(run_, nullptr)), run_, false,
                         state);
  const std::vector<std::int32_t> bytes = onnx_fixture::random_tokens(4 * item.count(), 256, 3);
  std::vector<float> pixels(bytes.begin(), bytes.end()), prepared;
  for (std::size_t i = 0; i < pixels.size(); ++i)
    prepared.push_back(static_cast<float>((pixels[i] / 255.0 - mean[i % 3]) / deviation[i % 3]));
  onnx_fixture::expect_equal_in_onnxruntime(
      file_,
      {onnx_fixture::floats("pixels.input", onnx_fixture::channels_first(pixels, item),
                            {4, 3, 12, 10}),
       onnx_fixture::floats("pixels.logits",
                            onnx_fixture::logits_of_images(graph, state, 4, prepared), {4, 10})});
}

// The data of a run need not be where the run is exported.
TEST_F(OnnxExport, NeedsNoDataBesideARun) {
  std::string table = "a,b,c,kind\n";
  for (int i = 0; i < 40; ++i)
    table += std::to_string(i) + "," + std::to_string(i * i % 7) + ",1.5," +
             (i % 2 == 0 ? "even" : "odd") + "\n";
  test_support::write_text(folder_ / "t.csv", table);
  expect_success(call("train --model mlp --dataset csv --annotations", folder_ / "t.csv",
                      "--batch-size 8 --threads 1 --save-dir", run_));
  std::filesystem::remove(folder_ / "t.csv");
  auto about = metadata(exported({run_}, "input float32 [batch, "));
  EXPECT_EQ(about["classes"], "2");
  EXPECT_FALSE(about.contains("normalization"));
  expect_error(call("export", run_, "-o", file_, "--input pixels"), 78, "which are no images");
}

// Another program computes the inputs from the metadata alone, as `engine inspect` prints them.
TEST_F(OnnxExport, OfATableHasTheCodingOfItsColumns) {
  std::string table = "mass,sex,name,year,kind\n";
  for (int i = 0; i < 80; ++i)
    table += std::to_string(i * 3 % 16) + (i % 3 == 0 ? ".5,m," : ".5,\"\xE9\",") + "n" +
             std::to_string(i % 20) + ",2023," + (i % 2 == 0 ? "even" : "odd") + "\n";
  test_support::write_text(folder_ / "t.csv", table);
  expect_success(call("train --model mlp --dataset csv --test-share 0 --annotations",
                      folder_ / "t.csv", "--batch-size 8 --threads 1 --save-dir", run_));
  std::filesystem::remove(folder_ / "t.csv");
  const std::string columns = metadata(exported({run_}))["columns"];
  const tools::Json list = tools::parse_json(columns, "columns");
  ASSERT_EQ(list.size(), 4u);
  const tools::Json expected_sex = tools::parse_json(
      R"({"column":"sex","number":2,"kind":"categories","inputs":2,"categories":["m",[233]]})", "");
  EXPECT_EQ(list[0]["column"], "mass");
  EXPECT_EQ(list[0]["kind"], "number");
  EXPECT_DOUBLE_EQ(list[0]["mean"].get<double>(), 8);
  EXPECT_NEAR(list[0]["deviation"].get<double>(), 4.609772, 1e-6);
  EXPECT_EQ(list[1], expected_sex);
  EXPECT_EQ(list[2]["kind"], "position");
  EXPECT_EQ(list[2]["categories"].size(), 20u);
  EXPECT_DOUBLE_EQ(list[2]["mean"].get<double>(), 9.5);
  EXPECT_EQ(list[3],
            tools::parse_json(R"({"column":"year","number":4,"kind":"constant","inputs":1})", ""));
  std::string lines = expect_success(call("inspect", run_, "--columns")).out;
  std::ranges::replace(lines, '\n', ',');
  EXPECT_EQ("[" + lines.substr(0, lines.size() - 1) + "]", columns);
}

TEST_F(OnnxExport, OnlyTablesHaveColumns) {
  train({"--save-dir", run_});
  EXPECT_FALSE(metadata(exported({run_})).contains("columns"));
  expect_error(call("inspect", run_, "--columns"), 65, ".ckpt no columns");
}

TEST_F(OnnxExport, OfTextHasItsVocabulary) {
  test_support::write_text(folder_ / "a.txt", std::string(300, 'b') + std::string(300, 'a'));
  expect_success(call("train --model gpt-nano --dataset text --data-dir", folder_.path().string(),
                      "--context 16 --steps 2 --batch-size 4 --threads 1 --save-dir", run_));
  auto about = metadata(
      exported({run_}, "input int64 [batch, positions] -> logits float32 [batch, positions, 2]"));
  EXPECT_EQ(about["vocabulary"], "[97,98]");
  EXPECT_FALSE(about.contains("normalization"));
}

TEST_F(OnnxExport, OfOtherWeightsNeedsTheModel) {
  train({"--save-dir", run_});
  const std::string arrays = folder_ / "w.safetensors";
  expect_success(call("export", run_, "-o", arrays));
  expect_error(call("export", arrays, "-o", file_), 2, "--model is required");
  expect_error(call("export", arrays, "-o", file_, "--model mlp"), 65, "layers.0.weight");
  exported({arrays, "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "6x6x1"},
           "input float32 [batch, 1, 6, 6]");
}

TEST_F(OnnxExport, FormatIsChosenByNameOrOption) {
  train({"--save-dir", run_});
  const std::string other = folder_ / "weights.bin";
  expect_success(call("export", run_, "-o", other, "--format safetensors"));
  EXPECT_FALSE(io::load_arrays(other).empty());
  expect_success(call("export", run_, "-o", other, "--format onnx"));
  EXPECT_EQ(Message(test_support::read_text(other)).one(2).bytes, "engine");
}

// The loss of a regression does not contain a sigmoid at the end.
TEST_F(OnnxExport, OfARegressionMayEndInASigmoid) {
  std::string table = "a,b,target\n";
  for (int i = 0; i < 40; ++i)
    table +=
        std::to_string(i) + "," + std::to_string(i * i % 7) + "," + std::to_string(i % 5) + "\n";
  test_support::write_text(folder_ / "t.csv", table);
  const std::string net = folder_ / "net.toml", weights = folder_ / "w.npz";
  test_support::write_text(net, test_support::layers_toml(R"(
flatten
dense fc out=4
activation function=tanh
dense end out=classes
activation function=sigmoid
)"));
  const std::vector<std::string> data =
      argv("--dataset csv --task regression --annotations", folder_ / "t.csv", "--model", net);
  const auto with_data = [&](std::vector<std::string> words) {
    words.insert(words.end(), data.begin(), data.end());
    return expect_success(engine(words));
  };
  with_data(argv("train --batch-size 8 --threads 1 --save-dir", run_));
  EXPECT_EQ(metadata(exported({run_}))["target"], "target");
  const std::string before = test_support::read_text(file_);
  expect_success(call("export", run_, "-o", weights));
  with_data(argv("export", weights, "-o", file_));
  with_data(argv("import", weights, "-o", folder_ / "made.ckpt"));
  exported({folder_ / "made.ckpt"});
  expect_error(
      engine(test_support::overridden(argv("train --threads 1 --model", net, "--dataset synthetic"),
                                      argv("--synthetic-shape 1x1x2"))),
      78, "expected logits");

  const std::string missing = onnx_fixture::python_is_missing();
  if (!missing.empty()) GTEST_SKIP() << missing;
  test_support::write_text(file_, before);
  const std::string inner = test_support::read_text(net);
  test_support::write_text(net, inner.substr(0, inner.rfind("[[layer]]")));
  const ::engine::Graph graph = models::build_model(net, {.sample_shape = {1, 1, 2}, .classes = 1});
  ::engine::ModelState state = ::engine::ModelState::allocate(graph, ::engine::DType::kF32);
  ::engine::import_state(io::load_arrays(weights), weights, false, state);
  const std::vector<float> rows = onnx_fixture::random_samples(12, 3);
  std::vector<float> outputs = onnx_fixture::logits_of_images(graph, state, 6, rows);
  for (float& output : outputs) output = 1 / (1 + std::exp(-output));
  onnx_fixture::expect_equal_in_onnxruntime(file_,
                                            {onnx_fixture::floats("rows.input", rows, {6, 2}),
                                             onnx_fixture::floats("rows.logits", outputs, {6, 1})});
}

// A mask of -inf is a constant of the file: nothing diverged.
TEST_F(OnnxExport, ConstantsMayBeInfinite) {
  const auto node = [](const std::string& type, const std::vector<std::string>& inputs,
                       const std::string& to) {
    return io::OnnxNode{type, to, inputs, {to}, {}};
  };
  const auto numbers = [](const std::string& name, std::vector<std::int64_t> shape) {
    return onnx_fixture::floats(
        name,
        onnx_fixture::random_samples(
            std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()), 4),
        shape);
  };
  io::OnnxModel net;
  net.inputs = {{.name = "x", .shape = {"batch", 8}}};
  net.outputs = {{.name = "y", .shape = {"batch", 3}}};
  net.nodes = {node("MatMul", {"x", "a.weight"}, "a"), node("Equal", {"places", "masked"}, "mask"),
               node("Where", {"mask", "infinite", "a"}, "b"), node("Softmax", {"b"}, "c"),
               node("MatMul", {"c", "d.weight"}, "y")};
  net.constants = {numbers("a.weight", {8, 4}), numbers("d.weight", {4, 3}),
                   onnx_fixture::integers("places", {0, 1, 0, 1}, {4}),
                   onnx_fixture::integers("masked", {1}, {}),
                   onnx_fixture::floats("infinite", {-INFINITY}, {})};
  const std::string path = folder_ / "net.onnx", weights = folder_ / "w.safetensors",
                    more = folder_ / "more";
  io::save_onnx(net, path);
  train(argv("--synthetic-shape 1x1x8 --synthetic-classes 3 --steps 3 --model", path, "--save-dir",
             run_));
  expect_success(call("eval", run_));
  expect_success(call("report", run_, "-o", folder_ / "run.html"));
  EXPECT_NE(test_support::read_text(folder_ / "run.html").find("Predictions"), std::string::npos);
  exported({run_});
  expect_success(call("export", run_, "-o", weights));
  expect_success(call("eval", weights,
                      "--dataset synthetic --synthetic-shape 1x1x8 "
                      "--synthetic-classes 3 --model",
                      path));
  expect_success(call("import", weights, "-o", folder_ / "made.ckpt", "--model", path));
  expect_success(call("train --threads 1 --steps 6 --average-last 1 --resume", run_));
  const CommandResult same = expect_success(call("verify", run_, run_));
  EXPECT_EQ(same.err.find("infinity"), std::string::npos) << same.err;
  const std::vector<io::NamedArray> arrays = io::load_arrays(weights);
  const auto is_infinite = [](const io::NamedArray& array) {
    return array.name.ends_with(".value") && array.data.size() == 16;
  };
  EXPECT_NE(std::ranges::find_if(arrays, is_infinite), arrays.end());
}

// A matrix that PyTorch multiplies from the right, `x @ self.w`, and one that it reads transposed:
// a layer stores the transpose of each, but state_dict() has them as the file does.
class ForeignLayout : public testing::Test {
 protected:
  void SetUp() override {
    io::OnnxModel model;
    model.producer = "pytorch";
    model.inputs = {{.name = "x", .shape = {"batch", 8}}};
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = {node("MatMul", {"x", "w"}, "a"),
                   node("Tanh", {"a"}, "b"),
                   node("MatMul", {"b", "square"}, "c"),
                   node("Transpose", {"turned"}, "t", {{"perm", std::vector<std::int64_t>{1, 0}}}),
                   node("Add", {"c", "t"}, "d"),
                   node("MatMul", {"d", "fc.weight"}, "y")};
    model.constants = {numbers("w", {8, 5}), numbers("square", {5, 5}), numbers("turned", {5, 1}),
                       numbers("fc.weight", {5, 3})};
    io::save_onnx(model, net_);
    train("run", {});
  }
  static io::OnnxNode node(const std::string& type, const std::vector<std::string>& inputs,
                           const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
    return {type, to, inputs, {to}, std::move(attributes)};
  }
  static io::NamedArray numbers(const std::string& name, std::vector<std::int64_t> shape) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i)
      values.push_back(static_cast<float>(i + 1) / 64);
    return onnx_fixture::floats(name, values, std::move(shape));
  }
  void train(const std::string& run, const std::vector<std::string>& more) const {
    expect_success(engine(program::quick_train(test_support::overridden(
        argv("--synthetic-shape 1x1x8 --synthetic-classes 3 --steps 1 --lr 1e-30 --model", net_,
             "--save-dir", folder_ / run),
        more))));
  }
  std::map<std::string, io::NamedArray> exported(const std::string& run) const {
    const std::string file = folder_ / (run + ".npz");
    expect_success(call("export", folder_ / run, "-o", file));
    std::map<std::string, io::NamedArray> arrays;
    for (io::NamedArray& array : io::load_arrays(file)) arrays[array.name] = std::move(array);
    return arrays;
  }
  static void expect_file(std::map<std::string, io::NamedArray> found) {
    for (const auto& [name, shape] :
         {std::pair<std::string, std::vector<std::int64_t>>{"w.weight", {8, 5}},
          {"square.weight", {5, 5}},
          {"turned.weight", {5, 1}},
          {"fc.weight", {5, 3}}}) {
      EXPECT_EQ(found[name].shape, shape) << name;
      EXPECT_EQ(found[name].data, numbers(name, shape).data) << name;
    }
  }

  const test_support::TemporaryDirectory folder_;
  const std::string net_ = folder_ / "net.onnx";
};

TEST_F(ForeignLayout, IsThatOfExports) { expect_file(exported("run")); }

TEST_F(ForeignLayout, IsReadByInitFromAndImport) {
  std::vector<io::NamedArray> own{numbers("w", {8, 5}), numbers("square", {5, 5}),
                                  numbers("turned", {5, 1}), numbers("fc.weight", {5, 3})};
  const std::string file = folder_ / "own.npz";
  io::save_arrays(own, file, io::ArrayFormat::kNpz);
  train("again", argv("--init-from", file));
  expect_file(exported("again"));
  // A checkpoint has the layers' layout.
  train("more", argv("--init-from", folder_ / "run"));
  expect_file(exported("more"));
  expect_success(call("import", file, "-o", folder_ / "made.ckpt", "--model", net_));
  EXPECT_EQ(call("verify --only params --rtol 0 --atol 1e-20", folder_ / "made.ckpt",
                 folder_ / "run/step-00000001.ckpt")
                .exit_code,
            0);
}

TEST_F(ForeignLayout, FilesOfEarlierVersionsStayAsTheyAre) {
  std::vector<io::NamedArray> old = io::load_arrays(folder_ / "run/step-00000001.ckpt");
  std::erase_if(old, [](const auto& array) { return array.section != io::Section::kParameter; });
  const std::string file = folder_ / "old.npz";
  io::save_arrays(old, file, io::ArrayFormat::kNpz);
  train("again", argv("--init-from", file));
  expect_file(exported("again"));
}

TEST_F(ForeignLayout, HasOtherClasses) {
  train("other", argv("--synthetic-classes 6"));
  EXPECT_EQ(exported("other")["fc.weight"].shape, (std::vector<std::int64_t>{5, 6}));
}

TEST_F(OnnxExport, RefusesInOneLine) {
  train({"--save-dir", run_});
  const auto refused = [&](std::vector<std::string> more, int code, const std::string& words) {
    more.insert(more.begin(), {"export", run_});
    expect_error(engine(more), code, words);
  };
  refused({"-o", file_, "--half"}, 2, "--half arrays");
  refused({"-o", file_, "--bf16"}, 2, "--bf16 arrays");
  refused({"-o", folder_ / "a.npz", "--model", "mlp"}, 2, "--model is for ONNX");
  refused({"-o", folder_ / "a.npz", "--input", "pixels"}, 2, "--input is for ONNX");
  refused({"-o", folder_ / "none/m.onnx"}, 73, "cannot create");
  refused({"-o", file_, "--weights", "ema"}, 65, "moving average");
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
