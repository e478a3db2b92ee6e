// --dataset arrays as users meet it: a class for each pixel or token from .npz files, evaluations,
// class maps, and models that do not fit. Numbers beside PyTorch: onnx/map_training_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "io/interchange/array_files.h"
#include "io/interchange/numpy/npz.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using array_fixture::array_of;
using program::expect_error;
using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;
using tools::Json;

constexpr std::int64_t kHeight = 4, kWidth = 6;

float number_at(std::int64_t i) { return static_cast<float>(i * 37 % 101) / 25 - 2; }

// Images of one channel whose pixels have the class of their number; every fifth pixel, and all of
// the first image, have no label.
std::vector<io::NamedArray> images(std::int64_t count, std::int64_t first = 0) {
  std::vector<float> x;
  std::vector<std::uint8_t> y;
  for (std::int64_t i = 0; i < count * kHeight * kWidth; ++i) {
    x.push_back(number_at(first + i));
    const int label = x.back() < -0.5F ? 0 : x.back() < 0.5F ? 1 : 2;
    const bool counts = i % 5 != 0 && i >= kHeight * kWidth;
    y.push_back(static_cast<std::uint8_t>(counts ? label : 255));
  }
  return {array_of("x", {count, 1, kHeight, kWidth}, x),
          array_of("y", {count, kHeight, kWidth}, y)};
}

class ArrayTraining : public testing::Test {
 protected:
  ArrayTraining() {
    io::save_npz(images(20), folder_ / "train.npz");
    io::save_npz(images(7, 11), folder_ / "test.npz");
    write_text(model_,
               "[[layer]]\nkind = \"conv2d\"\nname = \"hidden\"\nout_channels = 8\nkernel = 1\n"
               "[[layer]]\nkind = \"relu\"\n"
               "[[layer]]\nkind = \"conv2d\"\nname = \"head\"\nout_channels = \"classes\"\n"
               "kernel = 1\n");
  }
  CommandResult train(const std::string& run, const std::vector<std::string>& more) const {
    return test_support::engine(test_support::overridden(
        argv(
            "train --dataset arrays --ignore-id 255 --epochs 6 --batch-size 5 --lr 0.2 --threads 1 "
            "--data-dir",
            folder_ / ".", "--model", model_, "--save-dir", folder_ / run),
        more));
  }
  Json evaluated(const std::string& run, const std::vector<std::string>& more = {}) const {
    return Json::parse(
        expect_success(test_support::engine(argv("eval", folder_ / run, "--format json", more)))
            .out);
  }

  const test_support::TemporaryDirectory folder_;
  const std::string model_ = folder_ / "net.toml";
};

TEST_F(ArrayTraining, LearnsTheClassOfEachPixel) {
  const CommandResult trained = expect_success(train("run", argv("--spawn 2")));
  expect_words(trained.out, {", mean IoU ", "Best so far: mean IoU "});
  expect_words(read_text(folder_ / "run/metrics.jsonl"), {"\"mean_iou\":", "\"best\":true"});
  const Json found = evaluated("run");
  EXPECT_GT(found["accuracy"].get<double>(), 0.8);
  EXPECT_GT(found["mean_iou"].get<double>(), 0.6);
  std::int64_t pixels = 0;
  for (const Json& each : found["classes"]) pixels += each["support"].get<std::int64_t>();
  EXPECT_EQ(found["rows"], pixels);
  EXPECT_EQ(pixels, 115) << "6 images of 24 pixels, without every fifth";
  EXPECT_EQ(found["samples"], 7);
  EXPECT_EQ(evaluated("run", argv("--spawn 3")), found);
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "run")).out, "     IoU  support");
  expect_success(call("report", folder_ / "run", "-o", folder_ / "page.html"));
  expect_words(read_text(folder_ / "page.html"),
               {" of 115 positions right (", "mean IoU 0.", ">IoU<"});
}

TEST_F(ArrayTraining, PredictsClassMaps) {
  expect_success(train("run", {}));
  io::save_npz({images(7, 11)[0]}, folder_ / "new.npz");
  const auto maps = [&](const std::string& file, const std::vector<std::string>& more) {
    const CommandResult made = expect_success(test_support::engine(argv(
        "predict", folder_ / "run", folder_ / "new.npz", "--maps-file", folder_ / file, more)));
    EXPECT_VALUES(made.out, "classes 24 positions 7 samples: " + (folder_ / file));
    return read_text(folder_ / file);
  };
  EXPECT_EQ(maps("one.npz", {}), maps("three.npz", argv("--spawn 3")));
  const io::NamedArray found = io::load_arrays(folder_ / "one.npz").at(0);
  EXPECT_EQ(found.name, "classes");
  EXPECT_EQ(found.type, io::DType::kU8);
  EXPECT_EQ(found.shape, (std::vector<std::int64_t>{7, kHeight, kWidth}));
  const std::vector<io::NamedArray> test = images(7, 11);
  std::int64_t right = 0;
  for (std::size_t i = 0; i < found.data.size(); ++i) right += found.data[i] == test[1].data[i];
  EXPECT_EQ(right, evaluated("run")["correct"].get<std::int64_t>());
  expect_error(call("predict", folder_ / "run", folder_ / "new.npz", "--top 2 --maps-file",
                    folder_ / "other.npz"),
               2, "--top one class");
  io::save_npz({array_of<float>("x", {1, 1, 2, 2}, {1, 2, 3, 4})}, folder_ / "small.npz");
  expect_error(
      call("predict", folder_ / "run", folder_ / "small.npz", "--maps-file", folder_ / "s.npz"), 65,
      "small.npz: x [2, 2, 1], [4, 6, 1]");
}

TEST_F(ArrayTraining, GoesOnFromItsCheckpoint) {
  expect_success(train("whole", {}));
  expect_success(train("part", argv("--epochs 2")));
  expect_success(call("train --resume", folder_ / "part", "--epochs 6"));
  expect_success(
      call("verify", folder_ / "whole/step-00000024.ckpt", folder_ / "part/step-00000024.ckpt"));
  expect_error(call("train --resume", folder_ / "part", "--epochs 7 --ignore-id 254"), 78,
               "ignore-id");
}

// Token ids with a label for each, and with one per text.
TEST_F(ArrayTraining, LearnsLabelsOfTokensAndOfTexts) {
  std::vector<std::int32_t> x, y, of_text;
  for (int i = 0; i < 60; ++i) {
    x.push_back(i * 7 % 5);
    y.push_back(x.back() % 2);
    if (i % 6 == 0) of_text.push_back(x.back() % 2);
  }
  const std::string tagger =
      "[[layer]]\nkind = \"embedding\"\nname = \"e\"\nvocabulary = 5\nwidth = 4\n"
      "[[layer]]\nkind = \"dense\"\nname = \"out\"\nout = \"classes\"\n";
  const auto save = [&](const io::NamedArray& labels) {
    for (const char* name : {"train.npz", "test.npz"})
      io::save_npz({array_of("x", {10, 6}, x), labels}, folder_ / name);
  };
  save(array_of("y", {10, 6}, y));
  write_text(model_, tagger);
  expect_success(train("tokens", argv("--epochs 30 --spawn 2")));
  EXPECT_EQ(evaluated("tokens")["accuracy"], 1);
  save(array_of("y", {10}, of_text));
  write_text(model_, tagger.substr(0, tagger.find("[[layer]]", 1)) +
                         "[[layer]]\nkind = \"reshape\"\nshape = [24]\n" +
                         tagger.substr(tagger.find("[[layer]]", 1)));
  expect_success(train("texts", argv("--epochs 30 --lr 0.1")));
  const Json texts = evaluated("texts");
  EXPECT_EQ(texts["accuracy"], 1);
  EXPECT_EQ(texts["auc"], 1);
  EXPECT_EQ(evaluated("texts", argv("--spawn 3")), texts);
  const CommandResult predicted =
      expect_success(call("predict", folder_ / "texts", folder_ / "test.npz"));
  EXPECT_CONTAINS(predicted.out, "input,sample,prediction,probability");
}

TEST_F(ArrayTraining, ATokenOutOfRangeNamesItsSampleAndLosesNoStep) {
  constexpr int kTexts = 10, kTokens = 6, kBad = 5;
  write_text(model_,
             "[[layer]]\nkind = \"embedding\"\nname = \"e\"\nvocabulary = 5\nwidth = 4\n"
             "[[layer]]\nkind = \"dense\"\nname = \"out\"\nout = \"classes\"\n");
  const auto save = [&](const char* name, bool is_bad) {
    std::vector<std::int32_t> x, y;
    for (int i = 0; i < kTexts * kTokens; ++i) {
      x.push_back(i * 7 % 5);
      y.push_back(x.back() % 2);
    }
    if (is_bad) x[kBad * kTokens + 2] = 11;
    io::save_npz({array_of("x", {kTexts, kTokens}, x), array_of("y", {kTexts, kTokens}, y)},
                 folder_ / name);
  };
  const std::string what = "token 11 at position 2 of sample ", why = " 5 tokens, ids 0 to 4";
  save("train.npz", false);
  for (const std::string ranks : {"1", "2"}) {
    const std::string run = folder_ / ("run" + ranks), whole = "whole" + ranks;
    save("test.npz", true);
    const CommandResult failed = train("run" + ranks, {"--spawn", ranks});
    EXPECT_EQ(failed.exit_code, 65) << failed.err;
    expect_words(failed.err, {"the evaluation failed: saved " + run + "/step-00000002.ckpt",
                              "evaluation of arrays: " + what + "5" + why});
    save("test.npz", false);
    expect_success(call("train --resume", run));
    expect_success(train(whole, {"--spawn", ranks}));
    expect_success(
        call("verify", run + "/step-00000012.ckpt", folder_ / (whole + "/step-00000012.ckpt")));
  }
  save("new.npz", true);
  expect_error(call("predict", folder_ / "run1", folder_ / "new.npz"), 65,
               (folder_ / "new.npz") + ": " + what + "6" + why);
  save("train.npz", true);
  const CommandResult untrained = train("other", {});
  EXPECT_EQ(untrained.exit_code, 65);
  EXPECT_VALUES(untrained.err, "training: " + what + "5" + why);
}

TEST_F(ArrayTraining, SaysWhichModelsDoNotFit) {
  expect_error(train("run", argv("--model mlp")), 78, "'mlp' labels [4, 6]");
  write_text(model_,
             "[[layer]]\nkind = \"conv2d\"\nname = \"head\"\nout_channels = \"classes\"\n"
             "kernel = 3\n");
  expect_error(train("run", {}), 78, "expected shape [4, 6, 3] (the classes), got [2, 4, 3]");
  expect_error(train("run", argv("--sampler stratified")), 78, "--sampler stratified position");
}

TEST_F(ArrayTraining, SaysThatImagesWithoutChannelsAreSequences) {
  for (const char* name : {"train.npz", "test.npz"})
    io::save_npz({array_of("x", {4, 28, 28}, std::vector<float>(4 * 28 * 28, 1)),
                  array_of("y", {4}, std::vector<std::int64_t>{0, 1, 0, 1})},
                 folder_ / name);
  expect_error(train("run", argv("--model convnet")), 78,
               "[samples, length, features] 28 28 x[:, None]");
  const CommandResult result = expect_success(train("rows", argv("--model mlp --epochs 1")));
  EXPECT_VALUES(result.err, "train.npz [4, 28, 28] [samples, length");
}

// Rows of six numbers, whose class follows from the first one; y as a column or not.
std::vector<io::NamedArray> rows(std::int64_t count, bool column = false) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = 0; k < 6; ++k) x.push_back(static_cast<float>(i * 7 % 5 - 2 + k));
    y.push_back(i * 7 % 5 < 2 ? 0 : 1);
  }
  const std::vector<std::int64_t> shape =
      column ? std::vector<std::int64_t>{count, 1} : std::vector<std::int64_t>{count};
  return {array_of("x", {count, 6}, x), array_of("y", shape, y)};
}

template <class T>
io::NamedArray converted(const io::NamedArray& x) {
  std::vector<float> values(x.data.size() / sizeof(float));
  std::memcpy(values.data(), x.data.data(), x.data.size());
  return array_of("x", x.shape, std::vector<T>(values.begin(), values.end()));
}

class RowTraining : public ArrayTraining {
 protected:
  RowTraining() {
    io::save_npz(rows(90), folder_ / "train.npz");
    io::save_npz(rows(30), folder_ / "test.npz");
    write_text(model_,
               "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = "
               "\"classes\"\n");
  }
  CommandResult train_rows(const std::string& run,
                           const std::vector<std::string>& more = {}) const {
    return test_support::engine(test_support::overridden(
        argv("train --dataset arrays --epochs 2 --batch-size 15 --lr 0.1 --threads 1 --data-dir",
             folder_ / ".", "--model", model_, "--save-dir", folder_ / run),
        more));
  }
};

TEST_F(RowTraining, IntegersAreNumbersForAModelOfNumbers) {
  expect_success(train_rows("run"));
  const Json own = evaluated("run");
  const auto lines = [&](const char* file) {
    const std::string out = expect_success(call("predict", folder_ / "run", folder_ / file)).out;
    std::string text;
    std::istringstream each(out);
    for (std::string line; std::getline(each, line);) text += line.substr(line.find(',')) + "\n";
    return text;
  };
  std::vector<io::NamedArray> arrays = rows(30);
  io::save_npz(arrays, folder_ / "float.npz");
  arrays[0] = converted<std::int64_t>(arrays[0]);
  io::save_npz(arrays, folder_ / "new.npz");
  EXPECT_EQ(lines("new.npz"), lines("float.npz"));
  io::save_npz(arrays, folder_ / "test.npz");
  EXPECT_EQ(evaluated("run")["loss"], own["loss"]);
}

TEST_F(RowTraining, ATrainingOnIntegersSaysThatTheyAreTokenIds) {
  for (const char* name : {"train.npz", "test.npz"}) {
    std::vector<io::NamedArray> arrays = rows(30);
    for (std::byte& byte : arrays[0].data) byte = std::byte{0};
    arrays[0] = converted<std::int64_t>(arrays[0]);
    io::save_npz(arrays, folder_ / name);
  }
  expect_error(train_rows("run", argv("--model mlp")), 78,
               "integers token ids: floats, x.astype('float32')");
}

TEST_F(RowTraining, PredictSaysWhichFilesItReads) {
  expect_success(train_rows("run"));
  write_text(folder_ / "rows.csv", "a,b\n1,2\n");
  expect_error(call("predict", folder_ / "run", folder_ / "rows.csv"), 65,
               "rows.csv: NumPy, .npz x, .npy");
}

TEST_F(RowTraining, AColumnOfLabelsIsALabelPerSample) {
  expect_success(train_rows("run"));
  const Json own = evaluated("run");
  io::save_npz(rows(90, true), folder_ / "train.npz");
  io::save_npz(rows(30, true), folder_ / "test.npz");
  expect_success(train_rows("column"));
  EXPECT_EQ(evaluated("column"), own);
  expect_success(train_rows("mlp", argv("--model mlp")));
}

TEST_F(RowTraining, TheTrainingPartIsEvaluatedWithoutATestPart) {
  expect_success(train_rows("run"));
  const Json own = evaluated("run", argv("--split train"));
  EXPECT_EQ(own["samples"], 90);
  std::filesystem::remove(folder_ / "test.npz");
  EXPECT_EQ(evaluated("run", argv("--split train")), own);
  io::save_npz(rows(45), folder_ / "train.npz");
  EXPECT_EQ(evaluated("run", argv("--split train"))["samples"], 45);
  const CommandResult other = call("eval", folder_ / "run", "--split train");
  EXPECT_CONTAINS(other.err, "all 45 training samples count");
  expect_error(call("eval", folder_ / "run"), 65, "no test.npz in");
}

}  // namespace
