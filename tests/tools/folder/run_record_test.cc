// run.json to a record and back, and what differs between a run and the start that resumes it.
#include "tools/folder/run_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/folder/run_comparison.h"

namespace {

using tools::ConfigValues;

tools::RunRecord sample() {
  return {.id = "20260102-030405-89abcdef",
          .model = "nets/a \"b\".toml",
          .definition = "[[layer]]\nkind = \"dense\"\n",
          .data = {.name = "text",
                   .folder = "/data/\xff",
                   .digest = "0123",
                   .train = 10,
                   .test = 2,
                   .classes = 3,
                   .shape = {64, 1, 1},
                   .normalization = io::Normalization::kUnit,
                   .vocabulary = std::string("\0a\xff", 3)},
          .options = {{"lr", {"0.05", "--lr"}}, {"model", {"m", "run.toml:3"}}},
          .starts = {{.time = "2026-01-02T03:04:05Z",
                      .program = "engine 1",
                      .command = "engine train",
                      .hosts = {"n1", "n2"},
                      .backend = "gloo",
                      .machines = {{.ranks = {0}, .facts = {{"cpu", "A \xff"}, {"threads", "4"}}},
                                   {.ranks = {1}, .facts = {{"cpu", "B"}}}},
                      .step = 0,
                      .changed = {}},
                     {.time = "2026-01-03T03:04:05Z",
                      .program = "engine 1",
                      .command = "engine train --resume a",
                      .hosts = {"n1"},
                      .step = 100,
                      .changed = {"lr 0.1 -> 0.05 (--lr)"}}}};
}

TEST(RunRecord, ReadsBackWhatItWrote) {
  const test_support::TemporaryDirectory folder;
  tools::write_run_record(sample(), folder.path().string());
  const tools::RunRecord read = tools::read_run_record(folder.path().string());
  tools::RunRecord expected = sample();
  expected.data.folder = "/data/\xEF\xBF\xBD";  // JSON holds no bytes that are not UTF-8
  EXPECT_EQ(tools::run_record_json(read, true), tools::run_record_json(expected, true));
  EXPECT_EQ(read.data.vocabulary, expected.data.vocabulary);
  ASSERT_EQ(read.starts.at(0).machines.size(), 2u);
  EXPECT_EQ(read.starts[0].backend, "gloo");
  EXPECT_EQ(read.starts[0].machines[0].facts.at("threads"), "4");
  EXPECT_EQ(read.starts[0].machines[1].ranks, std::vector<int>{1});
}

TEST(RunRecord, OfAnEarlierVersionKnowsNothingOfItsMachines) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(
      folder / "run.json",
      R"({"schema":1,"run":"r","model":"mlp","definition":"","data":{"name":"d","folder":"",)"
      R"("train":1,"test":0,"classes":2,"shape":[1],"normalization":"unit","digest":""},)"
      R"("options":{},"starts":[{"time":"t","program":"engine 0","command":"engine train",)"
      R"("ranks":1,"hosts":["n1"],"step":0,"changed":[]}]})");
  const tools::RunRecord read = tools::read_run_record(folder.path().string());
  ASSERT_EQ(read.starts.size(), 1u);
  EXPECT_EQ(read.starts[0].hosts, std::vector<std::string>{"n1"});
  EXPECT_EQ(read.starts[0].backend, "");
  EXPECT_TRUE(read.starts[0].machines.empty());
}

TEST(RunRecord, ADamagedOneIsNamed) {
  const test_support::TemporaryDirectory folder;
  const std::string dir = folder.path().string(), whole = tools::run_record_json(sample(), false);
  EXPECT_THROW(tools::read_run_record(dir), io::MissingFileError);
  for (const std::string& text :
       {std::string(""), std::string("[]"), std::string("{\"schema\":1}"),
        std::string("{\"schema\":2,\"run\":\"x\"}"), whole.substr(0, whole.size() / 2)}) {
    test_support::write_text(folder / "run.json", text);
    try {
      tools::read_run_record(dir);
      ADD_FAILURE() << text;
    } catch (const io::DataError& error) {
      EXPECT_EQ(std::string(error.what()).find(folder / "run.json"), 0u) << error.what();
    }
  }
}

// It would never answer.
TEST(RunRecord, APipeInItsPlaceIsRefused) {
  const test_support::TemporaryDirectory folder;
  ASSERT_EQ(mkfifo((folder / "run.json").c_str(), 0600), 0);
  EXPECT_THROW(tools::read_run_record(folder.path().string()), io::DataError);
}

TEST(RunComparison, ListsWhatChanged) {
  const ConfigValues before{{"epochs", {"2", "--epochs"}},     {"lr", {"0.05", "--lr"}},
                            {"save-dir", {"a", "--save-dir"}}, {"data-dir", {"x", "--data-dir"}},
                            {"momentum", {"", "not used"}},    {"seed", {"1", "--seed"}}};
  ConfigValues now = before;
  EXPECT_TRUE(tools::option_changes(before, now).empty());
  now["save-dir"].value = "b";
  now["data-dir"].value = "y";
  now["lr"] = {"0.050", "--lr"};  // the same number
  EXPECT_TRUE(tools::option_changes(before, now).empty());
  now["lr"] = {"0.01", "ENGINE_LR"};
  now["epochs"] = {"3", "--epochs"};
  const auto changes = tools::option_changes(before, now);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(tools::change_text(changes[0]), "epochs 2 -> 3 (--epochs)");
  EXPECT_EQ(tools::change_text(changes[1]), "lr 0.05 -> 0.01 (ENGINE_LR)");
  EXPECT_NO_THROW(tools::check_changes(changes, {}, "a"));
}

TEST(RunComparison, StepsInThePlaceOfEpochsAreOneChange) {
  const ConfigValues epochs{{"epochs", {"9", "--epochs"}}, {"steps", {"", "not used"}}},
      steps{{"epochs", {"", "not used"}}, {"steps", {"5", "--steps"}}};
  const auto to_steps = tools::option_changes(epochs, steps);
  ASSERT_EQ(to_steps.size(), 1u);
  EXPECT_EQ(tools::change_text(to_steps[0]), "steps unset -> 5 (--steps)");
  const auto to_epochs = tools::option_changes(steps, epochs);
  ASSERT_EQ(to_epochs.size(), 1u);
  EXPECT_EQ(tools::change_text(to_epochs[0]), "epochs unset -> 9 (--epochs)");
}

TEST(RunComparison, PlacesOfTheDataAreComparedApart) {
  const ConfigValues before{{"annotations", {"/a.csv", "--annotations"}}},
      now{{"annotations", {"/b.csv", "--annotations"}}};
  EXPECT_TRUE(tools::option_changes(before, now).empty());
  const auto changes = tools::place_changes(before, now);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(tools::change_text(changes[0]), "annotations /a.csv -> /b.csv (--annotations)");
}

TEST(RunComparison, AnotherExperimentIsRefusedUnlessAllowed) {
  const ConfigValues before{{"epochs", {"2", "--epochs"}}, {"optimizer", {"adamw", "--optimizer"}}};
  ConfigValues now = before;
  now["optimizer"] = {"sgd", "--optimizer"};
  const auto changes = tools::option_changes(before, now);
  EXPECT_VALUES(test_support::error_of<io::ConfigError>(
                    [&] { tools::check_changes(changes, {"seed"}, "runs/a"); }),
                "runs/a --optimizer adamw, sgd (--optimizer): --allow-change optimizer");
  EXPECT_NO_THROW(tools::check_changes(changes, {"optimizer"}, "runs/a"));
}

TEST(RunComparison, AModelIsSaidToBeAllowedOnlyWhereItsArraysMayFit) {
  const auto advice = [](const std::string& before, const std::string& now) {
    try {
      tools::check_changes(tools::option_changes({{"epochs", {"1", ""}}, {"model", {before, ""}}},
                                                 {{"epochs", {"1", ""}}, {"model", {now, ""}}}),
                           {}, "runs/a");
    } catch (const io::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_LACKS(advice("mlp", "convnet"), "--allow-change");
  EXPECT_VALUES(advice("mlp", "convnet"), "runs/a --model mlp, convnet");
  EXPECT_VALUES(advice("mlp", "net.toml"), "--model mlp, net.toml --allow-change model");
  EXPECT_VALUES(advice("a.toml", "b.toml"), "--model a.toml, b.toml --allow-change model");
}

TEST(RunComparison, EveryOptionNamedInItsListsExists) {
  for (const auto& [name, entry] : tools::options_of_run({{"lr", {}}, {"resume", {}}}))
    EXPECT_EQ(name, "lr");
  for (const char* name : {"resume", "save-dir", "metrics", "rank"}) {
    EXPECT_TRUE(tools::belongs_to_one_start(name));
    EXPECT_NE(tools::find_option(name), nullptr);
  }
}

}  // namespace
