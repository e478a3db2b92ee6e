// Other data than the run's are coded as the checkpoint states: by names, and all of them count.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/predict/eval_support.h"
#include "tests/tools/commands/program.h"

namespace {

using eval_support::evaluate;
using eval_support::Evaluated;
using eval_support::Json;
using eval_support::predict;
using eval_support::Words;
using program::expect_error;
using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::write_text;
namespace fs = std::filesystem;

// x has the label's place, with some noise; color is the label, mostly.
std::string colors(int rows, double shift, const Words& names = {"b", "g", "r"},
                   const Words& values = {"blue", "green", "red"}) {
  std::string text = "color,x,label\n";
  for (int i = 0; i < rows; ++i) {
    const auto label = static_cast<std::size_t>((i * 7 + i / 3) % 3),
               color = i % 5 == 0 ? (label + 1) % 3 : label;
    text += values[color] + "," +
            std::to_string(static_cast<double>(label) - 1 + i * 37 % 11 / 20.0 + shift) + "," +
            names[label] + "\n";
  }
  return text;
}

class ModelCoding : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string run() const { return path("run"); }
  std::string train_colours(const Words& more = {}) const {
    write_text(path("train.csv"), colors(240, 0));
    return eval_support::train(
        run(), test_support::overridden(
                   {"--dataset", "csv", "--annotations", path("train.csv"), "--lr", "0.05"}, more));
  }
  CommandResult fine_tune(const std::string& data, const Words& more = {}) const {
    Words words = argv("train --model mlp --dataset csv --annotations", path(data),
                       "--batch-size 16 --threads 1 --epochs 1 --init-from", run(), "--save-dir",
                       path("tuned"));
    words = test_support::overridden(words, more);
    return engine(words);
  }
  int right(const std::string& file, const Words& labels) const {
    const std::vector<Json> lines = predict(run(), {file});
    EXPECT_EQ(lines.size(), labels.size());
    int correct = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) correct += lines[i]["prediction"] == labels[i];
    return correct;
  }
  static Words labels_of(const std::string& table) {
    Words labels;
    std::istringstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) labels.push_back(line.substr(line.rfind(',') + 1));
    return labels;
  }
  static Words predicted(const std::vector<Json>& lines) {
    Words labels;
    for (const Json& line : lines) labels.push_back(line["prediction"]);
    return labels;
  }
  // What an earlier version wrote: no statement of the samples.
  static void forget_samples(const std::string& path) {
    io::Checkpoint checkpoint = io::load_checkpoint(path);
    checkpoint.samples.clear();
    io::save_checkpoint(checkpoint, path);
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(ModelCoding, AHoldOutIsCodedAsTheRunAndAllItsRowsCount) {
  train_colours();
  const std::string table = colors(150, 1000);
  write_text(path("shifted.csv"), table);
  const Evaluated shifted = evaluate(run(), {"--annotations", path("shifted.csv")});
  EXPECT_EQ(shifted.report["samples"], 150);
  EXPECT_EQ(shifted.report["correct"], right(path("shifted.csv"), labels_of(table)));
  EXPECT_LT(shifted.report["correct"], 100);
  expect_words(shifted.err, {"all 150 test samples count"});
  // The run's own file, under another name, is its own data: the test part counts.
  fs::rename(path("train.csv"), path("moved.csv"));
  const Evaluated own = evaluate(run(), {"--annotations", path("moved.csv")});
  EXPECT_EQ(own.report["samples"], 48);
  EXPECT_EQ(own.err, "");
  // A single row, of one class, without the others.
  write_text(path("one.csv"), "label,x,note,color\ng,0,hello,green\n");
  EXPECT_EQ(evaluate(run(), {"--annotations", path("one.csv")}).report["samples"], 1);
  expect_error(call("eval", run(), "--annotations", path("one.csv"), "--ignore-columns x"), 78,
               "leave it out");
}

TEST_F(ModelCoding, AFileChangedInPlaceIsAHoldOutToo) {
  train_colours();
  write_text(path("train.csv"), colors(90, 1000));
  const Evaluated changed = evaluate(run());
  EXPECT_EQ(changed.report["samples"], 90);
  expect_words(changed.err, {"warning: data differ"});
}

// Options that take other samples of the data than the run took: the file is compared as the run
// read it.
TEST_F(ModelCoding, AFileChangedInPlaceIsAHoldOutWhateverIsTakenOfIt) {
  train_colours();
  const std::vector<Words> others{{"--limit", "30"}};
  for (const Words& other : others) {
    const Evaluated own = evaluate(run(), other);
    EXPECT_EQ(own.err, "") << other[0];
    EXPECT_EQ(own.report["samples"], 48) << other[0];
  }
  // Also under another name.
  fs::rename(path("train.csv"), path("moved.csv"));
  const Evaluated moved = evaluate(run(), {"--annotations", path("moved.csv"), "--limit", "30"});
  EXPECT_EQ(moved.err, "");
  EXPECT_EQ(moved.report["samples"], 48);
  write_text(path("train.csv"), colors(90, 1000));
  for (Words other : others) {
    const Evaluated changed = evaluate(run(), other);
    EXPECT_EQ(changed.report["samples"], 90) << other[0];
    expect_words(changed.err, {"warning differ"});
    other.insert(other.end(), {"--spawn", "2"});
    EXPECT_EQ(evaluate(run(), other).report["samples"], 90) << other[0];
  }
  fs::remove(path("train.csv"));
  expect_error(call("eval", run(), "--limit 30"), 65, "train.csv");
}

// A checkpoint of an earlier version needs the run's own data to learn the coding from.
TEST_F(ModelCoding, AnEarlierCheckpointRefusesAFileChangedInPlaceWhateverIsTakenOfIt) {
  train_colours();
  const std::string file = io::find_newest_checkpoint(run(), nullptr);
  forget_samples(file);
  write_text(path("in.csv"), colors(20, 0));
  const Words before = predicted(predict(run(), {path("in.csv")}));
  EXPECT_EQ(predicted(predict(run(), {path("in.csv"), "--limit", "30"})), before);
  write_text(path("train.csv"), colors(90, 1000));
  for (const Words& other : std::vector<Words>{{"--limit", "30"}}) {
    expect_error(engine({"eval", run(), other[0], other[1]}), 65, "train.csv has changed since");
    expect_error(engine({"predict", run(), path("in.csv"), other[0], other[1]}), 65, "data differ");
  }
}

TEST_F(ModelCoding, ClassesThatTheModelLacksAreWrongAndNamed) {
  train_colours();
  // b becomes a_new, g becomes b: by sorted places all would look right.
  const std::string table = colors(150, 0, {"a_new", "b", "r"});
  write_text(path("renamed.csv"), table);
  const Evaluated found = evaluate(run(), {"--annotations", path("renamed.csv")});
  EXPECT_EQ(found.report["samples"], 150);
  EXPECT_EQ(found.report["correct"], right(path("renamed.csv"), labels_of(table)));
  const Words labels = labels_of(table);
  const auto lacking = std::ranges::count(labels, "a_new");
  EXPECT_EQ(found.report["unknown"], lacking);
  expect_words(found.err,
               {std::to_string(lacking) +
                " of 150 samples have a class that the model lacks: 'a_new' (first: row "});
  const Json& classes = found.report["classes"];
  ASSERT_EQ(classes.size(), 4u);
  EXPECT_EQ(classes[3]["class"], "a_new");
  EXPECT_EQ(classes[3]["support"], lacking);
  EXPECT_EQ(classes[3]["recall"], 0);
  EXPECT_EQ(found.report["confusion"].size(), 4u);
  // Nothing has a class of the model's.
  write_text(path("none.csv"), colors(30, 0, {"1", "2", "3"}));
  const Evaluated none = evaluate(run(), {"--annotations", path("none.csv"), "--spawn", "2"});
  EXPECT_EQ(none.report["correct"], 0);
  EXPECT_TRUE(none.report["loss"].is_null()) << none.report;
}

TEST_F(ModelCoding, CategoriesThatTheModelLacksAreNamedByEvalAndPredict) {
  train_colours();
  const std::string table = colors(150, 0, {"b", "g", "r"}, {"mauve", "green", "red"});
  write_text(path("mauve.csv"), table);
  const Evaluated found = evaluate(run(), {"--annotations", path("mauve.csv")});
  EXPECT_EQ(found.report["correct"], right(path("mauve.csv"), labels_of(table)));
  const std::string line = "of 150 rows color lacks: 'mauve' row";
  expect_words(found.err, {line});
  for (const char* ranks : {"1", "3"})
    expect_words(call("predict", run(), path("mauve.csv"), "--spawn", ranks).err, {line});
}

TEST_F(ModelCoding, ErrorsOfARegressionAreInTheUnitOfTheRunsTarget) {
  const auto prices = [](double above) {
    std::string text = "a,b,price\n";
    for (int i = 0; i < 160; ++i) {
      const double a = i * 37 % 97 / 50.0 - 1, b = i * 53 % 89 / 50.0 - 1;
      text += std::to_string(a) + "," + std::to_string(b) + "," +
              std::to_string(500 + 40 * a - 20 * b + above) + "\n";
    }
    return text;
  };
  write_text(path("train.csv"), prices(0));
  eval_support::train(run(), {"--dataset", "csv", "--annotations", path("train.csv"), "--task",
                              "regression", "--lr", "0.05", "--epochs", "6"});
  write_text(path("wrong.csv"), prices(10'000));
  const Evaluated wrong = evaluate(run(), {"--annotations", path("wrong.csv")});
  EXPECT_EQ(wrong.report["samples"], 160);
  EXPECT_NEAR(wrong.report["mse"].get<double>(), 1e8, 5e6);
  EXPECT_LT(wrong.report["r2"].get<double>(), -1000);
}

std::string cifar(int images, int offset, int brightness) {
  std::string bytes;
  for (int i = 0; i < images; ++i) {
    bytes += static_cast<char>((i + offset) % 10);
    for (int k = 0; k < 3072; ++k)
      bytes += static_cast<char>((i * 31 + k * 7 + k / 300 * (i % 10)) % 90 + brightness);
  }
  return bytes;
}

TEST_F(ModelCoding, ChannelStatisticsAreTheRunsWhateverLiesBesideTheTestFile) {
  fs::create_directories(path("data"));
  fs::create_directories(path("other"));
  fs::create_directories(path("alone"));
  write_text(path("data/data_batch_1.bin"), cifar(60, 0, 20));
  write_text(path("data/test_batch.bin"), cifar(30, 1, 25));
  eval_support::train(run(), {"--dataset", "cifar10", "--data-dir", path("data")});
  const Evaluated own = evaluate(run());
  for (const char* folder : {"other", "alone"})
    fs::copy_file(path("data/test_batch.bin"), path(std::string(folder) + "/test_batch.bin"));
  write_text(path("other/data_batch_1.bin"), cifar(60, 3, 150));
  for (const char* folder : {"other", "alone"}) {
    const Evaluated found = evaluate(run(), {"--data-dir", path(folder)});
    EXPECT_EQ(found.report["loss"], own.report["loss"]) << folder;
    EXPECT_EQ(found.report["samples"], 30);
  }
}

TEST_F(ModelCoding, ATextKeepsTheVocabularyOfTheRun) {
  std::string text, other;
  for (int i = 0; i < 300; ++i) text += "abcd"[i * 7 % 4];
  for (int i = 0; i < 100; ++i) other += "zbcd"[i * 7 % 4];
  write_text(path("train.txt"), text);
  write_text(path("other.txt"), other);
  eval_support::train(run(), {"--model", "gpt-nano", "--dataset", "text", "--data-dir",
                              path("train.txt"), "--context", "8"});
  const Evaluated found = evaluate(run(), {"--data-dir", path("other.txt")});
  expect_words(found.err,
               {"25 of 100 bytes are characters that the model lacks: 'z' (first: byte "});
  // 75 characters are left: 9 windows of 8, each with its next character.
  EXPECT_EQ(found.report["rows"], 72);
  EXPECT_EQ(found.report["classes"].size(), 4u);
  const CommandResult next = expect_success(engine({"predict", run(), path("other.txt")}));
  expect_words(next.err, {"25 of 100 bytes are characters that the model lacks: 'z'"});
  // In UTF-16 it is the same text.
  std::string wide = "\xFF\xFE";
  for (const char c : other) wide += {c, '\0'};
  write_text(path("wide.txt"), wide);
  EXPECT_EQ(evaluate(run(), {"--data-dir", path("wide.txt")}).report["loss"], found.report["loss"]);
  EXPECT_EQ(predict(run(), {path("wide.txt")})[0]["prediction"],
            predict(run(), {path("other.txt")})[0]["prediction"]);
  write_text(path("none.txt"), "zzz");
  expect_error(engine({"predict", run(), path("none.txt")}), 65, "'z'");
  // Fine-tuning has the model's characters, too.
  write_text(path("other.txt"), other + other);
  const CommandResult tuned =
      expect_success(call("train --model gpt-nano --dataset text --data-dir", path("other.txt"),
                          "--context 8 --batch-size 4 --threads 1 --epochs 1 --init-from", run(),
                          "--save-dir", path("tuned")));
  expect_words(tuned.err, {"50 of 200 bytes are characters that the model lacks: 'z'"});
  EXPECT_EQ(io::load_description(io::find_newest_checkpoint(path("tuned"), nullptr)).vocabulary,
            "abcd");
}

TEST_F(ModelCoding, FineTuningKeepsTheCodingOfTheModel) {
  train_colours();
  // Two of the classes, in numbers of another scale: the coding stays.
  write_text(path("few.csv"), colors(60, 5, {"g", "g", "r"}));
  const CommandResult tuned = expect_success(fine_tune("few.csv"));
  const auto statement = [](const std::string& folder) {
    return io::load_description(io::find_newest_checkpoint(folder, nullptr)).samples;
  };
  Json before = tools::parse_json(statement(run()), "before"),
       after = tools::parse_json(statement(path("tuned")), "after");
  EXPECT_EQ(after["table"], before["table"]);
  EXPECT_EQ(after["class_names"], before["class_names"]);
  // It goes on with the same coding.
  const CommandResult resumed = expect_success(call("train --resume", path("tuned"), "--epochs 2"));
  EXPECT_LACKS(resumed.err, "lacks");
  EXPECT_EQ(statement(path("tuned")), statement(path("tuned")));
  EXPECT_EQ(tools::parse_json(statement(path("tuned")), "resumed")["table"], before["table"]);
}

TEST_F(ModelCoding, FineTuningOnNewClassesIsAsked) {
  train_colours();
  write_text(path("new.csv"), colors(60, 0, {"1", "2", "3"}));
  const CommandResult refused = fine_tune("new.csv");
  EXPECT_EQ(refused.exit_code, 65);
  expect_words(refused.err, {"60 of 60 samples have a class that the model lacks: ", "'1'", "'2'",
                             "'3'", "--init-coding inputs"});
  const auto state = [&] {
    return tools::parse_json(
        io::load_description(io::find_newest_checkpoint(path("tuned"), nullptr)).samples, "state");
  };
  const CommandResult inputs = expect_success(fine_tune("new.csv", {"--init-coding", "inputs"}));
  const Json before = tools::parse_json(
      io::load_description(io::find_newest_checkpoint(run(), nullptr)).samples, "before");
  EXPECT_EQ(state()["class_names"], Json::parse("[\"1\",\"2\",\"3\"]"));
  EXPECT_EQ(state()["table"], before["table"]);
  fs::remove_all(path("tuned"));
  write_text(path("new.csv"), colors(60, 100, {"1", "2", "3"}));
  const CommandResult none = expect_success(fine_tune("new.csv", {"--init-coding", "none"}));
  EXPECT_NE(state()["table"], before["table"]);
  fs::remove_all(path("tuned"));
  expect_error(fine_tune("train.csv", {"--columns", "x"}), 78, "--init-coding none");
  expect_error(call("train --model mlp --dataset csv --annotations", path("new.csv"),
                    "--init-coding inputs"),
               78, "init-from");
}

TEST_F(ModelCoding, ARunIsNotResumedOnOtherNames) {
  train_colours();
  const auto resume = [&](const std::string& table) {
    write_text(path("train.csv"), table);
    return call("train --resume", run(), "--epochs 3");
  };
  // The same places in sorted order, the same counts.
  expect_error(resume(colors(240, 0, {"bb", "gg", "rr"})), 65, "lacks: 'bb'");
  expect_error(resume(colors(240, 0, {"b", "g", "r"}, {"blue", "green", "rosy"})), 78,
               "trained other data");
  std::string table = colors(240, 0);
  table.replace(table.find("color"), 6, "flavor");
  expect_error(resume(table), 65, "no column 'color'");
  expect_success(resume(colors(240, 0)));
}

TEST_F(ModelCoding, TheDigestKnowsNames) {
  io::DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = path("t.csv");
  const auto digest = [&](const std::string& table) {
    write_text(path("t.csv"), table);
    const io::DatasetSplits splits = io::load_dataset(options);
    return io::data_digest(splits.train, splits.coding.get());
  };
  const io::DataDigest one = digest(colors(60, 0)),
                       classes = digest(colors(60, 0, {"bb", "g", "r"})),
                       values = digest(colors(60, 0, {"b", "g", "r"}, {"blue", "green", "rosy"}));
  EXPECT_NE(one.text, classes.text);
  EXPECT_NE(one.text, values.text);
  EXPECT_EQ(one.nameless, classes.nameless);
  EXPECT_EQ(one.nameless, values.nameless);
  EXPECT_TRUE(one.is(one.text) && one.is(one.nameless));
  EXPECT_FALSE(one.is(classes.text));
}

TEST_F(ModelCoding, CheckpointsOfEarlierVersionsAreResumedAndEvaluated) {
  train_colours();
  io::DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = path("train.csv");
  const io::DataDigest digest = io::data_digest(io::load_dataset(options).train);
  const std::string file = io::find_newest_checkpoint(run(), nullptr);
  io::Checkpoint checkpoint = io::load_checkpoint(file);
  checkpoint.samples.clear();
  checkpoint.data_digest = digest.nameless;
  io::save_checkpoint(checkpoint, file);
  const std::string old = path("old.ckpt");
  fs::copy_file(file, old);
  EXPECT_EQ(evaluate(old).report["samples"], 48);
  // Another file is coded as the run's data are.
  const std::string table = colors(150, 1000);
  write_text(path("shifted.csv"), table);
  const Evaluated shifted = evaluate(old, {"--annotations", path("shifted.csv")});
  EXPECT_EQ(shifted.report["samples"], 150);
  EXPECT_LT(shifted.report["correct"], 100);
  expect_words(shifted.err, {"coded as in " + path("train.csv")});
  expect_success(call("train --resume", run(), "--epochs 3"));
  // Without the run's data nothing says how.
  fs::remove(path("train.csv"));
  expect_error(call("eval", old, "--annotations", path("shifted.csv")), 65,
               old + " not state samples coded");
}

// Weights alone state no coding: the table at hand is coded by itself, which may be another coding.
TEST_F(ModelCoding, WeightsAloneAreCodedByTheDataWithAWarning) {
  train_colours();
  write_text(path("hold.csv"), colors(90, 1000));
  const Words other = argv("--dataset csv --annotations", path("hold.csv"));
  const std::string learned = "learned hold.csv,";
  for (const char* name : {"w.safetensors", "w.npz", "w.pth"}) {
    expect_success(call("export", run(), "-o", path(name)));
    Words words = other;
    words.insert(words.end(), {"--model", "mlp"});
    const Evaluated eval = evaluate(path(name), words);
    expect_words(eval.err, {"warning: " + path(name), learned, "test part 18 90"});
    EXPECT_EQ(eval.report["samples"], 18) << name;
    words.insert(words.end(), {"--split", "train"});
    EXPECT_EQ(evaluate(path(name), words).report["samples"], 72) << name;
    words = argv("predict", path(name), path("hold.csv"), "--model mlp --threads 1");
    words.insert(words.end(), other.begin(), other.end());
    expect_words(expect_success(engine(words)).err, {"warning: " + path(name), learned});
  }
  Words import = argv("import", path("w.pth"), "-o", path("i.ckpt"), "--model mlp");
  import.insert(import.end(), other.begin(), other.end());
  expect_success(engine(import));
  expect_words(evaluate(path("i.ckpt")).err, {learned, "18 of 90"});
  // The run's own checkpoint states its coding.
  const CommandResult own = expect_success(call("predict", run(), path("hold.csv"), "--threads 1"));
  EXPECT_EQ(own.err.find("warning"), std::string::npos) << own.err;
}

}  // namespace
