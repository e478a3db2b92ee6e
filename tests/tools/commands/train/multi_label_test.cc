// --task multi-label as users meet it: from a table with columns of 0 and 1 to probabilities.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "io/interchange/numpy/npz.h"
#include "tests/io/data/images/png_bytes.h"
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
using test_support::engine;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;
using tools::Json;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr int kLabelledRows = 160;

double number_at(int row, int column) { return (row * 37 + column * 53) % 97 / 4.0 - 12; }
bool is_hot(int row) { return number_at(row, 0) > number_at(row, 1); }
bool is_odd(int row) { return number_at(row, 2) + 0.3 * number_at(row, 0) > 2; }

// Every seventh label is unknown. `bad` in the label "odd" of row 8 of the data.
std::string labelled_table(const std::string& bad = "") {
  std::string text = "a,hot,b,c,odd\n";
  for (int row = 0; row < kLabelledRows; ++row) {
    text += std::to_string(number_at(row, 0)) + (is_hot(row) ? ",1," : ",0,");
    text += std::to_string(number_at(row, 1)) + "," + std::to_string(number_at(row, 2)) + ",";
    text += row == 7 && !bad.empty() ? bad : row % 7 == 3 ? "" : is_odd(row) ? "1" : "0";
    text += "\n";
  }
  return text;
}

class MultiLabel : public ::testing::Test {
 protected:
  MultiLabel() {
    write_text(table(), labelled_table());
    write_text(linear_model(),
               "[[layer]]\nkind = \"flatten\"\n"
               "[[layer]]\nkind = \"dense\"\nname = \"out\"\nout = \"classes\"\n");
  }
  std::string table() const { return folder_ / "rows.csv"; }
  std::string linear_model() const { return folder_ / "linear.toml"; }

  CommandResult train(const Words& more) const {
    Words words =
        argv("train --model", linear_model(), "--dataset csv --annotations", table(),
             "--task multi-label --label-column hot,odd --batch-size 16 --threads 1", "--seed 3");
    return engine(test_support::overridden(words, more));
  }
  std::string trained(const std::string& name, const Words& more = {}) const {
    Words words{"--epochs", "20", "--lr", "0.3", "--save-dir", folder_ / name};
    expect_success(train(test_support::overridden(words, more)));
    return folder_ / name;
  }
  static Json evaluated(const std::string& run, const Words& more = {}) {
    Words words{"eval", run, "--format", "json", "--threads", "1"};
    const CommandResult result = expect_success(engine(test_support::overridden(words, more)));
    return tools::parse_json(result.out, "eval");
  }
  // Returns the probabilities of each row.
  static std::vector<std::pair<double, double>> predicted(const std::string& run,
                                                          const std::string& file) {
    const CommandResult result = expect_success(call("predict", run, file, "--threads 1"));
    std::istringstream lines(result.out);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "input,sample,p(hot),p(odd)");
    std::vector<std::pair<double, double>> rows;
    while (std::getline(lines, line)) {
      const std::size_t last = line.rfind(','), first = line.rfind(',', last - 1);
      rows.emplace_back(std::stod(line.substr(first + 1)), std::stod(line.substr(last + 1)));
    }
    return rows;
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(MultiLabel, LearnsLabelsAndPredictsAProbabilityOfEach) {
  const std::string run = trained("run");
  const Json eval = evaluated(run);
  EXPECT_GE(eval["map"].get<double>(), 0.97);
  EXPECT_GE(eval["micro_f1"].get<double>(), 0.9);
  EXPECT_EQ(eval["samples"], kLabelledRows / 5);
  EXPECT_EQ(eval["labels"][0]["label"], "hot");
  EXPECT_EQ(eval["labels"][0]["known"], kLabelledRows / 5);
  EXPECT_LT(eval["labels"][1]["known"].get<int>(), kLabelledRows / 5);
  EXPECT_FALSE(eval.contains("accuracy"));
  int right = 0;
  const auto rows = predicted(run, table());
  ASSERT_EQ(rows.size(), std::size_t{kLabelledRows});
  for (int row = 0; row < kLabelledRows; ++row) {
    const auto& [hot, odd] = rows[static_cast<std::size_t>(row)];
    right += (hot >= 0.5) == is_hot(row);
    right += (odd >= 0.5) == is_odd(row);
  }
  EXPECT_GE(right, 2 * kLabelledRows * 95 / 100);
}

// The loss of eval is the mean over the labels that are known.
TEST_F(MultiLabel, TheLossOfEvalFollowsFromPredictions) {
  const std::string run = trained("run", {"--test-share", "0", "--epochs", "2"});
  const auto rows = predicted(run, table());
  double sum = 0;
  int known = 0;
  for (int row = 0; row < kLabelledRows; ++row) {
    const auto& [hot, odd] = rows[static_cast<std::size_t>(row)];
    sum -= std::log(is_hot(row) ? hot : 1 - hot);
    ++known;
    if (row % 7 == 3) continue;
    sum -= std::log(is_odd(row) ? odd : 1 - odd);
    ++known;
  }
  EXPECT_NEAR(evaluated(run, {"--split", "train"})["loss"].get<double>(), sum / known, 1e-5);
}

TEST_F(MultiLabel, EvalIsTheSameForEveryWorldSize) {
  const std::string run = trained("run", {"--epochs", "2"});
  const Json one = evaluated(run, {"--split", "train"});
  for (const char* ranks : {"2", "3"})
    EXPECT_EQ(evaluated(run, {"--split", "train", "--spawn", ranks}), one) << ranks;
}

TEST_F(MultiLabel, CanonicalOrderGivesTheSameBitsForAnyNumberOfRanks) {
  const auto with_ranks = [&](const char* ranks) {
    return trained(std::string("ranks") + ranks,
                   argv("--reduction-order canonical --epochs 3 --spawn", ranks));
  };
  const std::string one = with_ranks("1");
  for (const char* ranks : {"2", "3"}) expect_success(engine({"verify", one, with_ranks(ranks)}));
}

TEST_F(MultiLabel, WeightsOfPositivesRaiseProbabilities) {
  const std::string plain = trained("plain", argv("--epochs 3 --lr 0.02")),
                    weighted =
                        trained("weighted", argv("--epochs 3 --lr 0.02 --class-weights 9,9"));
  const auto sum = [&](const std::string& run) {
    double total = 0;
    for (const auto& [hot, odd] : predicted(run, table())) total += hot + odd;
    return total;
  };
  EXPECT_GT(sum(weighted), 1.1 * sum(plain));
  const std::string balanced =
      trained("balanced", argv("--epochs 3 --lr 0.02 --class-weights balanced"));
  EXPECT_NE(engine({"verify", plain, balanced}).exit_code, 0);
  expect_error(train(argv("--class-weights 1,2,3")), 78, "--class-weights 3 numbers 2 rows.csv");
  expect_error(call("train --resume", weighted, "--epochs 4 --class-weights 1,1"), 78,
               "class-weights");
}

TEST_F(MultiLabel, ReportsHaveScoresAndNoAccuracy) {
  const std::string run =
      trained("run", {"--epochs", "4", "--log-every", "2", "--tensorboard", "--keep-best", "map"});
  const std::string metrics = read_text(run + "/metrics.jsonl");
  expect_words(metrics,
               {"\"map\":", "\"micro_f1\":", "\"macro_f1\":", "\"auc\":", "\"best\":true"});
  EXPECT_LACKS(metrics, "accuracy");
  std::string events;
  for (const auto& file : fs::directory_iterator(run + "/tensorboard"))
    events += read_text(file.path().string());
  expect_words(events, {"test/map", "test/micro_f1", "test/macro_f1", "test/auc", "train/loss"});
  EXPECT_LACKS(events, "accuracy");
  expect_words(engine({"eval", run}).out, {": loss ", ", mAP ", ", micro F1 ", ", macro F1 ",
                                           ", AUC ", "\nlabel  average precision"});
  expect_words(call("eval", run, "--format csv").out,
               {"label,average_precision,precision,recall,f1,positives,known,auc\nhot,", "\nodd,"});
  expect_success(call("report", run, "--no-predictions -o", folder_ / "page.html"));
}

TEST_F(MultiLabel, GoesOnWhereItStopped) {
  const std::string whole = trained("whole", {"--epochs", "4"}),
                    half = trained("half", {"--epochs", "2"});
  expect_success(call("train --resume", half, "--epochs 4"));
  expect_success(engine({"verify", whole, half}));
}

TEST_F(MultiLabel, TheCheckpointKnowsTheLabelsWithoutTheTable) {
  const std::string run = trained("run", {"--epochs", "2"});
  const auto before = predicted(run, table());
  const std::string rows = folder_ / "other.csv";
  std::string unlabelled = "c,a,b\n";
  for (int row = 0; row < kLabelledRows; ++row)
    unlabelled += std::to_string(number_at(row, 2)) + "," + std::to_string(number_at(row, 0)) +
                  "," + std::to_string(number_at(row, 1)) + "\n";
  write_text(rows, unlabelled);
  fs::rename(table(), folder_ / "hold.csv");
  EXPECT_EQ(predicted(run, rows), before);
  std::istringstream lines(
      expect_success(call("predict", run, rows, "--format json --threads 1")).out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"schema\":1,\"event\":\"labels\",\"labels\":[\"hot\",\"odd\"]}");
  std::getline(lines, line);
  EXPECT_EQ(tools::parse_json(line, "line")["probabilities"],
            (Json{before[0].first, before[0].second}));
  const std::string onnx = folder_ / "m.onnx";
  expect_success(call("export", run, "--format onnx -o", onnx));
  expect_words(read_text(onnx), {"multi-label", "[\"hot\",\"odd\"]"});
  EXPECT_EQ(evaluated(run, {"--annotations", folder_ / "hold.csv"})["samples"], kLabelledRows / 5)
      << "the same data by another name";
}

// The rows of the table as arrays: a label that is unknown is -1.
TEST_F(MultiLabel, ArraysHaveLabelsSideBySide) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (int row = 0; row < kLabelledRows; ++row) {
    for (const int column : {0, 1, 2}) x.push_back(static_cast<float>(number_at(row, column) / 10));
    y.insert(y.end(), {is_hot(row), row % 7 == 3 ? -1 : is_odd(row)});
  }
  for (const char* name : {"train.npz", "test.npz"})
    io::save_npz({array_of("x", {kLabelledRows, 3}, x), array_of("y", {kLabelledRows, 2}, y)},
                 folder_ / name);
  const std::string run = folder_ / "run";
  expect_success(call("train --dataset arrays --task multi-label --epochs 20 --lr 0.5 --spawn 2",
                      "--batch-size 16 --model", linear_model(), "--data-dir", folder_ / ".",
                      "--save-dir", run));
  expect_words(read_text(run + "/metrics.jsonl"), {"\"map\":", "\"macro_f1\":"});
  const Json eval = evaluated(run);
  EXPECT_GE(eval["map"].get<double>(), 0.95);
  EXPECT_EQ(eval["labels"][1]["label"], "1");
  EXPECT_EQ(eval["labels"][1]["known"], kLabelledRows - 23);
  EXPECT_EQ(evaluated(run, {"--spawn", "3"}), eval);
  std::istringstream lines(
      expect_success(call("predict", run, folder_ / "test.npz", "--threads 1")).out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "input,sample,p(0),p(1)");
  io::save_npz({array_of("x", {2, 3}, std::vector<float>(6)),
                array_of("y", {2, 3}, std::vector<std::int64_t>(6))},
               folder_ / "test.npz");
  expect_error(call("eval", run), 65, "differ from those of ");
}

// The color of an image says which labels it has.
TEST_F(MultiLabel, ImagesHaveATableBesideThem) {
  for (const std::string part : {"/train", "/val"}) {
    fs::create_directories(folder_ / ("." + part));
    std::string table = "file,red,green\n";
    for (int i = 0; i < 24; ++i) {
      const bool red = i % 2 == 0, green = i % 3 == 0;
      const std::string name = std::to_string(i) + ".png";
      write_text(folder_ / ("." + part + "/" + name),
                 test_support::plain_png(8, 8, red ? 220 : 20, green ? 220 : 20, 90));
      table += name + (red ? ",1," : ",0,") + (i == 5 ? "" : green ? "1" : "0") + "\n";
    }
    write_text(folder_ / ("." + part + "/labels.csv"), table);
  }
  const std::string run = folder_ / "run";
  expect_success(call("train --dataset images --task multi-label --image-size 8 --epochs 20",
                      "--lr 0.01 --batch-size 8 --model", linear_model(), "--data-dir",
                      folder_ / ".", "--save-dir", run));
  const Json eval = evaluated(run);
  EXPECT_EQ(eval["map"].get<double>(), 1);
  EXPECT_EQ(eval["labels"][1]["known"], 23);
  const std::string out =
      expect_success(call("predict", run, folder_ / "val/0.png", "--threads 1")).out;
  EXPECT_CONTAINS(out, "input,sample,p(red),p(green)\n");
}

TEST_F(MultiLabel, RefusesOtherLabelsByTheirPlace) {
  for (const char* bad : {"yes", "2", "-1", "0.5"}) {
    write_text(table(), labelled_table(bad));
    expect_error(train({}), 65,
                 "row 9 (line 9): found '" + std::string(bad) +
                     "' in column 5 ('odd'), a label, expected 0 or 1");
  }
}

TEST_F(MultiLabel, NewLabelsMayBeLearnedFromTheInputsOfARun) {
  const std::string run =
      trained("run", {"--epochs", "1", "--label-column", "hot", "--columns", "a,b,c"});
  const Words other{"--epochs", "2", "--init-from", run, "--init-coding", "inputs"};
  const std::string next =
      trained("next", test_support::overridden(other, {"--label-column", "odd"}));
  const Json eval = evaluated(next);
  EXPECT_EQ(eval["labels"].size(), 1u);
  EXPECT_EQ(eval["labels"][0]["label"], "odd");
  EXPECT_EQ(evaluated(next, {"--annotations", table(), "--label-column", "5"}), eval);
  expect_success(engine(argv("train --resume", next, "--epochs 3")));
  EXPECT_EQ(evaluated(next)["labels"][0]["label"], "odd");
  expect_error(call("eval", next, "--annotations", table(), "--label-column hot"), 65,
               "rows.csv --label-column hot odd");
  expect_error(call("eval", next, "--annotations", table(), "--label-column od"), 78,
               "rows.csv 'od' 'odd'");
  expect_error(train(test_support::overridden(other, {"--label-column", "c"})), 78,
               "rows.csv --label-column c input");
}

TEST_F(MultiLabel, RefusesWhatIsForClassesOnly) {
  expect_error(train(argv("--label-smoothing 0.1")), 78, "--label-smoothing requires");
  expect_error(train(argv("--keep-best accuracy --save-dir", folder_ / "x")), 78,
               "--keep-best accuracy --task multi-label; loss map");
  expect_error(train(argv("--label-column hot,hot")), 78, "twice");
  expect_error(call("train --model mlp --task multi-label --dataset csv --annotations", table()),
               78, "--task multi-label requires --label-column");
  expect_error(engine(program::quick_train({"--task", "multi-label", "--label-column", "1"})), 78,
               "--dataset csv");
  const std::string run = trained("run", {"--epochs", "1"});
  expect_error(call("predict", run, table(), "--top 1"), 2, "--top classes");
  expect_error(call("eval", run, "--confusion", folder_ / "x.csv"), 2, "--confusion classes");
}

}  // namespace
