// --task regression as users meet it: from a table to predictions in the column's unit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

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

constexpr int kRows = 160;

double feature(int row, int column) { return (row * 37 + column * 53) % 97 / 4.0 - 12; }
double price(int row) {
  return 1000 + 30 * feature(row, 0) - 20 * feature(row, 1) + 5 * feature(row, 2);
}

// `bad` in the target of row 8 of the data instead of its number.
std::string linear_table(const std::string& bad = "") {
  std::string text = "a,b,c,price\n";
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < 3; ++c) text += std::to_string(feature(row, c)) + ",";
    text += (row == 7 && !bad.empty() ? bad : std::to_string(price(row))) + "\n";
  }
  return text;
}

class Regression : public ::testing::Test {
 protected:
  Regression() {
    write_text(table(), linear_table());
    write_text(linear_model(),
               "[[layer]]\nkind = \"flatten\"\n"
               "[[layer]]\nkind = \"dense\"\nname = \"out\"\nout = \"classes\"\n");
  }
  std::string table() const { return folder_ / "homes.csv"; }
  std::string linear_model() const { return folder_ / "linear.toml"; }

  CommandResult train(const Words& more, const std::string& model = "") const {
    Words words =
        argv("train --model", model.empty() ? linear_model() : model, "--dataset csv --annotations",
             table(), "--task regression --batch-size 16 --threads 1 --seed 3");
    words = test_support::overridden(words, more);
    return engine(words);
  }
  std::string trained(const std::string& name, const Words& more = {}) const {
    Words words{"--epochs", "20", "--lr", "0.05", "--save-dir", folder_ / name};
    words = test_support::overridden(words, more);
    const CommandResult result = expect_success(train(words));
    return folder_ / name;
  }
  static Json evaluated(const std::string& run, const Words& more = {}) {
    Words words{"eval", run, "--format", "json", "--threads", "1"};
    words = test_support::overridden(words, more);
    const CommandResult result = expect_success(engine(words));
    return tools::parse_json(result.out, "eval");
  }
  std::vector<double> predicted(const std::string& run) const {
    const CommandResult result = expect_success(call("predict", run, table(), "--threads 1"));
    std::istringstream lines(result.out);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "input,sample,prediction");
    std::vector<double> numbers;
    while (std::getline(lines, line))
      numbers.push_back(std::stod(line.substr(line.rfind(',') + 1)));
    return numbers;
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(Regression, FindsALinearFunctionAndPredictsInItsUnit) {
  for (const char* loss : {"mse", "mae", "huber"}) {
    const std::string run = trained(loss, {"--loss", loss, "--lr-schedule", "cosine"});
    const Json eval = evaluated(run);
    EXPECT_GE(eval["r2"].get<double>(), 0.99) << loss;
    EXPECT_EQ(eval["samples"], kRows / 5);
    EXPECT_EQ(eval["target"], "price");
    EXPECT_FALSE(eval.contains("accuracy"));
    const std::vector<double> numbers = predicted(run);
    ASSERT_EQ(numbers.size(), std::size_t{kRows});
    for (int row = 0; row < kRows; ++row)
      EXPECT_NEAR(numbers[static_cast<std::size_t>(row)], price(row), 60) << row;  // of 300 to 1700
  }
}

// All rows are test rows of eval --split train, and predict has them all: what eval says follows
// from what predict says.
TEST_F(Regression, ErrorsOfEvalFollowFromPredictions) {
  const std::string run = trained("run", {"--test-share", "0", "--epochs", "3"});
  const Json eval = evaluated(run, {"--split", "train"});
  const std::vector<double> numbers = predicted(run);
  ASSERT_EQ(numbers.size(), std::size_t{kRows});
  double mean = 0, squares = 0, distances = 0, spread = 0;
  for (int row = 0; row < kRows; ++row) mean += price(row) / kRows;
  for (int row = 0; row < kRows; ++row) {
    const double error = numbers[static_cast<std::size_t>(row)] - price(row);
    squares += error * error;
    distances += std::abs(error);
    spread += (price(row) - mean) * (price(row) - mean);
  }
  EXPECT_NEAR(eval["mse"].get<double>(), squares / kRows, 1e-4 * squares / kRows);
  EXPECT_NEAR(eval["mae"].get<double>(), distances / kRows, 1e-4 * distances / kRows);
  EXPECT_NEAR(eval["r2"].get<double>(), 1 - squares / spread, 1e-6);
  // The loss is that of standardized numbers.
  EXPECT_NEAR(eval["loss"].get<double>(), squares / spread, 1e-4 * squares / spread);
}

TEST_F(Regression, EvalIsTheSameForEveryWorldSize) {
  const std::string run = trained("run", {"--epochs", "2"});
  const Json one = evaluated(run, {"--split", "train"});
  EXPECT_GT(one["mse"].get<double>(), 0);
  for (const char* ranks : {"2", "3"})
    EXPECT_EQ(evaluated(run, {"--split", "train", "--spawn", ranks}), one) << ranks;
}

TEST_F(Regression, CanonicalOrderGivesTheSameBitsForAnyNumberOfRanks) {
  const Words canonical{"--reduction-order", "canonical", "--epochs", "3", "--loss", "mae"};
  const auto with_ranks = [&](const char* ranks, const char* threads) {
    Words words = canonical;
    words.insert(words.end(), {"--spawn", ranks, "--threads", threads});
    return trained(std::string("ranks") + ranks + threads, words);
  };
  const std::string one = with_ranks("1", "1");
  for (const auto& [ranks, threads] : {std::pair{"2", "1"}, {"4", "1"}, {"1", "2"}}) {
    expect_success(engine({"verify", one, with_ranks(ranks, threads)}));
  }
  EXPECT_NE(engine({"verify", one, trained("other", {"--epochs", "3"})}).exit_code, 0);
}

TEST_F(Regression, ReportsHaveErrorsAndNoAccuracy) {
  const std::string run =
      trained("run", {"--epochs", "4", "--log-every", "2", "--tensorboard", "--keep-best", "r2"});
  const std::string metrics = read_text(run + "/metrics.jsonl");
  expect_words(metrics, {"\"mse\":", "\"mae\":", "\"r2\":", "\"best\":true"});
  EXPECT_LACKS(metrics, "accuracy");
  EXPECT_TRUE(fs::exists(run + "/best"));
  std::string events;
  for (const auto& file : fs::directory_iterator(run + "/tensorboard"))
    events += read_text(file.path().string());
  expect_words(events, {"test/r2", "test/mae", "test/mse", "train/loss"});
  EXPECT_LACKS(events, "accuracy");
  const CommandResult page = expect_success(call("report", run, "-o - --worst 5"));
  expect_words(page.out, {"target price: mean squared error", "best test R2",
                          "Explained share of the variance", "farthest targets"});
  EXPECT_LACKS(page.out, "ccuracy");
  const CommandResult said = engine({"eval", run});
  expect_words(said.out, {"target price: loss ", ", MSE ", ", MAE ", ", R2 0."});
}

TEST_F(Regression, GoesOnWhereItStopped) {
  const std::string whole = trained("whole", {"--epochs", "4"}),
                    half = trained("half", {"--epochs", "2"});
  expect_success(call("train --resume", half, "--epochs 4"));
  expect_success(engine({"verify", whole, half}));
  const CommandResult other = call("train --resume", half, "--epochs 5 --loss mae");
  expect_error(other, 78, "loss");
}

TEST_F(Regression, TheCheckpointKnowsTheTargetWithoutTheTable) {
  const std::string run = trained("run", {"--epochs", "2"});
  const std::vector<double> before = predicted(run);
  const std::string rows = folder_ / "rows.csv";
  fs::rename(table(), rows);
  const CommandResult json =
      expect_success(call("predict", run, rows, "--format json --threads 1"));
  std::istringstream lines(json.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"schema\":1,\"event\":\"target\",\"target\":\"price\"}");
  std::size_t row = 0;
  for (; std::getline(lines, line); ++row)
    EXPECT_NEAR(tools::parse_json(line, "line")["prediction"].get<double>(), before.at(row), 1e-4);
  EXPECT_EQ(row, before.size());
  expect_words(call("predict", run, rows, "--format table").out, {"sample  price\n"});
  const std::string onnx = folder_ / "m.onnx";
  expect_success(call("export", run, "--format onnx -o", onnx));
  expect_words(read_text(onnx), {"target_mean", "target_deviation", "price"});
}

TEST_F(Regression, TrainsNothingWithDryRun) {
  const CommandResult result = expect_success(train({"--dry-run"}, "mlp"));
  expect_words(result.out, {"regression", "mse"});
}

TEST_F(Regression, RefusesTargetsThatAreNoNumbersByTheirPlace) {
  for (const char* bad : {"dear", "NaN", "", "inf", "1e39"}) {
    write_text(table(), linear_table(*bad == '\0' ? " " : bad));
    expect_error(train({}), 65, "row 9 line 9 '" + std::string(bad) + "' float32");
  }
  std::string same = "a,price\n";
  for (int row = 0; row < 20; ++row) same += std::to_string(row) + ",5.5\n";
  write_text(table(), same);
  expect_error(train({}), 65, "price 5.5 16");
}

TEST_F(Regression, RefusesWhatIsForClassesOnly) {
  expect_error(train(argv("--label-smoothing 0.1")), 78,
               "--label-smoothing requires --task classification");
  expect_error(train(argv("--sampler stratified")), 78, "--sampler stratified requires");
  expect_error(train(argv("--tensorboard-samples 4 --tensorboard-dir", folder_ / "tb")), 78,
               "--tensorboard-samples requires --task classification");
  for (const char* measure : {"accuracy", "top5", "perplexity"})
    expect_error(train(argv("--keep-best", measure, "--save-dir", folder_ / "run")), 78,
                 std::string("--keep-best ") + measure + " is not for --task regression");
  expect_error(train({}, "mingpt"), 78, "token ids");

  const CommandResult images = engine(program::quick_train({"--task", "regression"}));
  expect_error(images, 78, "--task regression requires --dataset csv");
  expect_error(engine(program::quick_train({"--loss", "mae"})), 78, "--loss mae requires --task");
  expect_error(
      engine(program::quick_train({"--keep-best", "r2", "--save-dir", folder_ / "classes"})), 78,
      "--keep-best r2 requires --task regression");

  const std::string run = trained("run", {"--epochs", "1"});
  expect_error(call("predict", run, table(), "--top 1"), 2, "--top classes");
  expect_error(call("predict", run, table(), "--probabilities"), 2, "--probabilities classes");
  expect_error(call("eval", run, "--confusion", folder_ / "x.csv"), 2, "--confusion classes");
  expect_error(call("eval", run, "--format csv"), 2, "--format csv classes");
}

TEST_F(Regression, ANumberNeedsTheTaskToBePredicted) {
  const CommandResult result = call("train --model mlp --dataset csv --annotations", table());
  expect_error(result, 65, "--task regression");
}

}  // namespace
