// The data on which a run is evaluated: its own split, or the data that the command line names.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/predict/eval_support.h"
#include "tests/tools/commands/program.h"

namespace {

using eval_support::evaluate;
using eval_support::Words;
using program::expect_error;
using test_support::call;
using test_support::engine;
using test_support::expect_success;
using test_support::write_text;

// Labels that nothing explains, behind an index without a name as pandas writes it.
std::string random_rows(int rows, int seed) {
  std::string text = ",x,y,label\n";
  unsigned state = static_cast<unsigned>(seed);
  const auto draw = [&](unsigned end) {
    return ((state = state * 1664525u + 1013904223u) >> 16) % end;
  };
  for (int i = 0; i < rows; ++i)
    text += std::to_string(i) + "," + std::to_string(draw(1000)) + ".5," +
            std::to_string(draw(1000)) + ".25," + (draw(2) == 0 ? "no" : "yes") + "\n";
  return text;
}

class OwnSplit : public ::testing::Test {
 protected:
  OwnSplit() {
    write_text(path("train.csv"), random_rows(100, 1));
    std::filesystem::create_directory(path("hold"));
    write_text(path("hold/hold.csv"), random_rows(30, 2));
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string run(const Words& more) const {
    return eval_support::train(path("run"), test_support::overridden({"--dataset", "csv"}, more));
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(OwnSplit, CannotBeDrawnAgain) {
  const std::string name = run({"--annotations", path("train.csv"), "--test-share", "0.3"});
  EXPECT_EQ(evaluate(name).report["samples"], 30);
  EXPECT_EQ(evaluate(name, {"--seed", "0", "--test-share", "0.3"}).report["samples"], 30);
  expect_error(call("eval", name, "--seed 7"), 78, "--seed 0 7");
  expect_error(call("eval", name, "--test-share 0.9"), 78, "--test-share 0.3 0.9");
  expect_error(call("eval", name, "--annotations", path("train.csv"), "--seed 7"), 78,
               "--seed 0 7");
  expect_error(call("eval", name, "--label-column y"), 78, "--label-column");
  expect_error(call("eval", name, "--csv-header no"), 78, "--csv-header");
  // A variable is no request: the run's own split counts.
  setenv("ENGINE_SEED", "7", 1);
  setenv("ENGINE_TEST_SHARE", "0.9", 1);
  EXPECT_EQ(evaluate(name).report, evaluate(name, {"--seed", "0"}).report);
  unsetenv("ENGINE_SEED");
  unsetenv("ENGINE_TEST_SHARE");
}

TEST_F(OwnSplit, IsEvaluatedAndResumedBesideAnIndexWithoutAName) {
  const std::string name = run({"--annotations", path("train.csv")});
  EXPECT_EQ(evaluate(name).report["samples"], 20);
  EXPECT_EQ(evaluate(name, {"--annotations", path("hold/hold.csv")}).report["samples"], 30);
  expect_success(call("train --resume", name, "--epochs 3 --threads 1"));
}

TEST_F(OwnSplit, GivesWayToDataThatAreNamedOnTheCommandLine) {
  const std::string table = run({"--annotations", path("train.csv")});
  EXPECT_EQ(evaluate(table, {"--data-dir", path("hold")}).report["samples"], 30);
  expect_error(call("eval", table, "--data-dir", path("missing")), 65, "missing");
  std::filesystem::remove_all(path("run"));
  std::filesystem::create_directory(path("train"));
  std::filesystem::rename(path("train.csv"), path("train/train.csv"));
  const std::string folder = run({"--data-dir", path("train")});
  EXPECT_EQ(evaluate(folder).report["samples"], 20);
  EXPECT_EQ(evaluate(folder, {"--annotations", path("hold/hold.csv")}).report["samples"], 30);
  expect_error(call("train --resume", folder, "--epochs 3 --annotations", path("hold/hold.csv")),
               78, "trained other data");
  for (const Words& words :
       {Words{"eval", folder}, Words{"train", "--model", "mlp", "--dataset", "csv"}}) {
    Words both = words;
    both.insert(both.end(), {"--data-dir", path("train"), "--annotations", path("hold/hold.csv")});
    expect_error(engine(both), 78, "exclude");
  }
}

TEST_F(OwnSplit, AHoldOutHasNoTrainingPart) {
  const std::string name = run({"--annotations", path("train.csv")});
  EXPECT_EQ(evaluate(name, {"--split", "train"}).report["samples"], 80);
  const test_support::CommandResult held =
      call("eval", name, "--annotations", path("hold/hold.csv"), "--split train");
  EXPECT_EQ(held.exit_code, 2) << held.err;
  program::expect_words(held.err, {"--split train: hold.csv is a hold-out"});
}

}  // namespace
