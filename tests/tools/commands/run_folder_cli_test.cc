// A run and its folder, as a user meets them: what used to lose work or to train something else in
// silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/checkpoint/checkpoint.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::quick_train;
using test_support::CommandResult;
using test_support::engine;
using test_support::read_text;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

void expect_end(const CommandResult& result, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, code) << result.out << result.err;
  program::expect_words(result.err, words);
}

std::int64_t epochs_of(const std::string& folder) {
  return io::load_checkpoint(io::find_newest_checkpoint(folder, nullptr)).epoch;
}

class RunFolderCli : public testing::Test {
 protected:
  std::string dir() const { return folder_ / "run"; }
  TemporaryDirectory folder_;
};

TEST_F(RunFolderCli, ASecondRunDoesNotTouchTheFirst) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--epochs", "4"})).exit_code, 0);
  const std::string snapshot = read_text(dir() + "/step-00000020.ckpt");
  expect_end(engine(quick_train({"--save-dir", dir(), "--epochs", "1", "--lr", "0.1"})), 73,
             {dir() + " holds a run (mlp on synthetic", "--resume", "--overwrite"});
  EXPECT_EQ(read_text(dir() + "/step-00000020.ckpt"), snapshot);
  expect_end(engine(quick_train({"--save-dir", dir(), "--epochs", "1", "--overwrite"})), 0,
             {"moved the run"});
  EXPECT_EQ(read_text(dir() + ".old-1/step-00000020.ckpt"), snapshot);
  EXPECT_EQ(epochs_of(dir()), 1);
}

TEST_F(RunFolderCli, ResumeNeedsOnlyTheFolder) {
  ASSERT_EQ(
      engine(quick_train({"--save-dir", dir(), "--lr", "0.03", "--optimizer", "adamw"})).exit_code,
      0);
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)"});
  EXPECT_NE(more.out.find("adamw lr 0.03"), std::string::npos) << more.out;
  EXPECT_EQ(epochs_of(dir()), 2);
  const std::string record = read_text(dir() + "/run.json");
  EXPECT_NE(record.find("epochs 1 -> 2 (--epochs)"), std::string::npos) << record;
}

TEST_F(RunFolderCli, AnotherExperimentIsRefusedWithBothValues) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases{
      {{"--optimizer", "adamw"}, {"--optimizer sgd", "adamw", "--allow-change optimizer"}},
      {{"--seed", "7"}, {"--seed 0", "7", "--allow-change seed"}},
      {{"--synthetic-size", "48"}, {"--synthetic-size 60", "48"}},
      {{"--no-shuffle"}, {"--shuffle true", "false"}}};
  for (const auto& [options, words] : cases) {
    std::vector<std::string> arguments{"--save-dir", dir(), "--resume", "auto", "--epochs", "2"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_end(engine(quick_train(arguments)), 78, words);
  }
  EXPECT_EQ(epochs_of(dir()), 1);
  expect_end(engine({"train", "--resume", dir(), "--epochs", "2", "--optimizer", "adamw",
                     "--allow-change", "optimizer"}),
             0, {"changed: ", "optimizer sgd -> adamw"});
  expect_end(engine({"train", "--resume", dir(), "--allow-change", "optimiser"}), 78,
             {"did you mean 'optimizer'"});
}

// Else the advice leads to a run that ends for another reason.
TEST_F(RunFolderCli, OnlyChangesThatCanWorkAreSaidToBeAllowed) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  const std::vector<std::pair<std::string, std::string>> never{
      {"model", "convnet"}, {"dtype", "f64"}, {"synthetic-classes", "5"}};
  for (const auto& [name, value] : never) {
    const CommandResult refused =
        engine({"train", "--resume", dir(), "--epochs", "2", "--" + name, value});
    expect_end(refused, 78, {"asked for is " + value, "leave it as it was, or start a new run\n"});
    EXPECT_EQ(refused.err.find("--allow-change"), std::string::npos) << refused.err;
    EXPECT_NE(engine({"train", "--resume", dir(), "--epochs", "2", "--" + name, value,
                      "--allow-change", name + ",data"})
                  .exit_code,
              0)
        << name << " can be changed: say so";
  }
  expect_end(engine({"train", "--resume", dir(), "--epochs", "2", "--synthetic-shape", "8x8x1"}),
             78,
             {"--allow-change synthetic-shape if the model's arrays keep their names and shapes"});
}

TEST_F(RunFolderCli, OtherDataAreRefused) {
  const std::string csv = folder_ / "a.csv";
  std::string rows = "x,y,label\n";
  for (int i = 0; i < 40; ++i)
    rows +=
        std::to_string(i % 7) + "," + std::to_string(i % 5) + ",c" + std::to_string(i % 2) + "\n";
  test_support::write_text(csv, rows);
  const std::vector<std::string> train{
      "train", "--model",   "mlp", "--dataset",  "csv", "--annotations", csv, "--batch-size",
      "8",     "--threads", "1",   "--save-dir", dir()};
  ASSERT_EQ(engine(train).exit_code, 0);
  rows.replace(rows.find("3,3,"), 4, "3,4,");
  test_support::write_text(csv, rows);
  expect_end(engine({"train", "--resume", dir(), "--epochs", "2"}), 78,
             {"was trained on other data", "--allow-change data"});
  EXPECT_EQ(
      engine({"train", "--resume", dir(), "--epochs", "2", "--allow-change", "data"}).exit_code, 0);
}

TEST_F(RunFolderCli, GoesOnFromAnyWorkingDirectory) {
  fs::create_directories(folder_ / "home/data/csv");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i % 7) + (i % 2 == 0 ? ",a\n" : ",b\n");
  test_support::write_text(folder_ / "home/data/csv/rows.csv", rows);
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "home");  // the data lie where no option says, in data/csv
  const CommandResult first = engine({"train", "--model", "mlp", "--dataset", "csv", "--batch-size",
                                      "8", "--threads", "1", "--save-dir", dir()});
  fs::current_path(folder_.path());
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  const CommandResult evaluated = engine({"eval", dir()});
  fs::current_path(before);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
}

TEST_F(RunFolderCli, AModelFromAFileIsKeptInTheRun) {
  const std::string toml = folder_ / "net.toml";
  const std::string layers =
      "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = 10\n";
  test_support::write_text(toml, layers);
  std::vector<std::string> first = quick_train({"--save-dir", dir()});
  first[2] = toml;
  const CommandResult trained = engine(first);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const CommandResult before = engine({"eval", dir()});
  ASSERT_EQ(before.exit_code, 0) << before.err;

  test_support::write_text(toml, "# edited\n" + layers);
  std::vector<std::string> again =
      quick_train({"--save-dir", dir(), "--resume", "auto", "--epochs", "2"});
  again[2] = toml;
  expect_end(engine(again), 78, {"was trained with other layers", "--allow-change model"});
  EXPECT_EQ(engine({"eval", dir()}).out, before.out);

  fs::remove(toml);
  EXPECT_EQ(engine({"eval", dir()}).out, before.out);
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(epochs_of(dir()), 2);
}

TEST_F(RunFolderCli, MetricsOfAnEarlierRunStay) {
  const std::string file = folder_ / "m.jsonl";
  for (const char* lr : {"0.1", "0.2"})
    ASSERT_EQ(engine(quick_train({"--metrics", file, "--lr", lr})).exit_code, 0);
  const std::string text = read_text(file);
  std::size_t starts = 0;
  for (std::size_t at = 0; (at = text.find("\"event\":\"start\"", at)) != std::string::npos; ++at)
    ++starts;
  EXPECT_EQ(starts, 2u) << text;
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--metrics", "-"})).exit_code, 0);
  EXPECT_NE(read_text(dir() + "/metrics.jsonl").find("\"event\":\"end\""), std::string::npos);
}

TEST_F(RunFolderCli, AConfigurationDoesNotPointAtTheRunItCameFrom) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--metrics", folder_ / "m.jsonl"})).exit_code,
            0);
  const std::string config = engine({"inspect", dir(), "--config"}).out;
  EXPECT_NE(config.find("model = \"mlp\""), std::string::npos) << config;
  for (const char* key : {"save-dir", "metrics", "resume"})
    EXPECT_EQ(config.find(key), std::string::npos) << key << " in: " << config;
}

TEST_F(RunFolderCli, AConfigurationReadsBackWhatItPrints) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--data-dir", "a $HOME/${b}"})).exit_code, 0);
  const std::string file = folder_ / "run.toml";
  test_support::write_text(file, engine({"inspect", dir(), "--config"}).out);
  ASSERT_EQ(engine({"train", "--config", file, "--save-dir", dir() + "2"}).exit_code, 0);
  EXPECT_EQ(engine({"inspect", dir() + "2", "--config"}).out, test_support::read_text(file));
}

TEST_F(RunFolderCli, CommandsTakeAFolder) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  ASSERT_EQ(engine(quick_train({"--save-dir", dir() + "2"})).exit_code, 0);
  const CommandResult same = engine({"verify", dir(), dir() + "2"});
  EXPECT_EQ(same.exit_code, 0);
  const std::string file = fs::path(io::find_newest_checkpoint(dir(), nullptr)).filename().string();
  EXPECT_TRUE(same.err.starts_with("verify: " + dir() + ": its newest snapshot, " + file +
                                   "\nverify: " + dir() + "2: its newest snapshot, " + file + "\n"))
      << same.err;
  EXPECT_EQ(engine({"verify", dir(), dir() + "2", "--quiet"}).err, "");
  const CommandResult exported = engine({"export", dir(), "-o", folder_ / "a.safetensors"});
  EXPECT_EQ(exported.exit_code, 0);
  EXPECT_EQ(exported.err, "export: " + dir() + ": its best snapshot, " + file + "\n");
  EXPECT_EQ(engine({"export", dir() + "/" + file, "-o", folder_ / "a.safetensors"}).err, "");
  const CommandResult shown = engine({"inspect", dir()});
  EXPECT_NE(shown.out.find("started  "), std::string::npos) << shown.out;
  EXPECT_EQ(engine(quick_train({"--init-from", dir()})).exit_code, 0);
  fs::create_directories(folder_ / "empty");
  expect_end(engine({"eval", folder_ / "empty"}), 65, {"no snapshot in"});
}

TEST_F(RunFolderCli, AutoMakesANewFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  ASSERT_EQ(engine(quick_train({"--save-dir", "auto"})).exit_code, 0);
  ASSERT_EQ(engine(quick_train({"--save-dir", "auto"})).exit_code, 0);
  fs::current_path(before);
  EXPECT_EQ(epochs_of(folder_ / "runs/mlp-synthetic-001"), 1);
  EXPECT_EQ(epochs_of(folder_ / "runs/mlp-synthetic-002"), 1);
}

TEST_F(RunFolderCli, AutoTwiceIsRefused) {
  expect_end(engine(quick_train({"--save-dir", "auto", "--resume", "auto"})), 78,
             {"--save-dir auto makes a new folder", "name the folder"});
}

TEST_F(RunFolderCli, ASnapshotOfTheRunIsGoneOnFromInItsFolder) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--epochs", "4", "--save-every", "1",
                                "--keep-last", "0"}))
                .exit_code,
            0);
  const std::string old = dir() + "/step-00000010.ckpt";
  const CommandResult more = engine({"train", "--resume", old, "--epochs", "3", "--lr", "0.02"});
  expect_end(more, 0,
             {"changed: epochs 4 -> 3 (--epochs)", "lr ",
              "10 snapshots newer than step 10 moved to " + dir() + "/given-up-1"});
  EXPECT_EQ(epochs_of(dir()), 3);
  EXPECT_TRUE(fs::exists(dir() + "/given-up-1/step-00000020.ckpt"));

  // Elsewhere it is only a snapshot.
  fs::copy(old, folder_ / "alone.ckpt");
  const CommandResult alone =
      engine({"train", "--resume", folder_ / "alone.ckpt", "--epochs", "3"});
  expect_end(alone, 0, {"nothing will be saved"});
}

TEST_F(RunFolderCli, AnOldLatestDoesNotCostNewerSnapshots) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--epochs", "4", "--save-every", "1",
                                "--keep-last", "0"}))
                .exit_code,
            0);
  const std::string passed_over =
      "skipped a snapshot: " + dir() +
      "/step-00000010.ckpt: `latest` names it, but step-00000020.ckpt is newer\n";
  const std::vector<std::vector<std::string>> commands{
      {"inspect", dir()},
      {"verify", dir(), dir() + "/step-00000020.ckpt"},
      {"train", "--resume", dir(), "--epochs", "5"},
      quick_train({"--save-dir", dir(), "--resume", "auto", "--epochs", "6"})};
  for (const std::vector<std::string>& command : commands) {
    test_support::write_text(dir() + "/latest", "step-00000010.ckpt\n");
    const CommandResult result = engine(command);
    if (command[0] != "train") {
      expect_end(result, 0, {passed_over});
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out.find("resumed " + dir() + "/step-00000010.ckpt"), std::string::npos);
    EXPECT_NE(result.err.find("step-00000010.ckpt: `latest` names it, but step-000000"),
              std::string::npos)
        << result.err;
  }
  EXPECT_EQ(epochs_of(dir()), 6);
  EXPECT_FALSE(fs::exists(dir() + "/given-up-1"));
}

TEST_F(RunFolderCli, ARateThatDivergedAtOnceIsNotTheRuns) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--lr", "0.03"})).exit_code, 0);
  const CommandResult diverged =
      engine({"train", "--resume", dir(), "--epochs", "9", "--lr", "1e6"});
  expect_end(diverged, 79, {"go on with --resume " + dir() + "/step-00000005.ckpt"});
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)\n"});
  EXPECT_NE(more.out.find("lr 0.03"), std::string::npos) << more.out;
  EXPECT_NE(read_text(dir() + "/run.json").find("1e+06"), std::string::npos);  // the start is told
  expect_end(
      engine({"train", "--resume", dir() + "/step-00000005.ckpt", "--epochs", "2", "--lr", "0.01"}),
      0, {"given-up-1"});
}

TEST_F(RunFolderCli, ARunWithoutASnapshotBeginsAnewAndSaysSo) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--lr", "0.03"})).exit_code, 0);
  for (const char* name : {"/step-00000005.ckpt", "/latest", "/best"}) fs::remove(dir() + name);
  expect_end(engine({"train", "--resume", dir(), "--lr", "0.01"}), 0,
             {"has no snapshot yet: it begins from step 0", "changed: lr 0.03 -> 0.01 (--lr)"});
  EXPECT_NE(read_text(dir() + "/run.json").find("lr 0.03 -> 0.01"), std::string::npos);
}

TEST_F(RunFolderCli, OtherDataThatAreAllowedAreTold) {
  std::string rows = "x,y,label\n";
  for (int i = 0; i < 40; ++i)
    rows +=
        std::to_string(i % 7) + "," + std::to_string(i % 5) + ",c" + std::to_string(i % 2) + "\n";
  test_support::write_text(folder_ / "a.csv", rows);
  test_support::write_text(folder_ / "b.csv", rows + rows.substr(rows.find('\n') + 1));
  ASSERT_EQ(engine({"train", "--model", "mlp", "--dataset", "csv", "--annotations",
                    folder_ / "a.csv", "--batch-size", "8", "--threads", "1", "--save-dir", dir()})
                .exit_code,
            0);
  expect_end(engine({"train", "--resume", dir(), "--annotations", folder_ / "b.csv",
                     "--allow-change", "data", "--epochs", "2"}),
             0,
             {"changed: data " + (folder_ / "a.csv") + " (32 train, 8 test) -> " +
              (folder_ / "b.csv") + " (64 train, 16 test), epochs 1 -> 2"});
  EXPECT_NE(read_text(dir() + "/run.json").find("(64 train, 16 test)"), std::string::npos);
}

TEST_F(RunFolderCli, AnEarlyStopSaysHowToGoOn) {
  const std::vector<std::string> train =
      quick_train({"--save-dir", dir(), "--epochs", "90", "--early-stop", "1:0.9"});
  ASSERT_EQ(engine(train).exit_code, 0);
  const CommandResult again = engine({"train", "--resume", dir()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  program::expect_words(again.out, {"nothing left to do: stopped early", "--early-stop 2 goes on"});
  expect_end(engine({"train", "--resume", dir(), "--early-stop", "2"}), 0, {"changed: early-stop"});
}

TEST_F(RunFolderCli, WhatIsInTheWayOfSavingIsSaidBeforeTheStart) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  fs::remove(dir() + "/latest");
  fs::create_directories(dir() + "/latest/in the way");
  expect_end(
      engine({"train", "--resume", dir(), "--epochs", "2"}), 73,
      {"cannot save in folder " + dir(), "latest: is a folder; expected the name of a file"});
}

TEST_F(RunFolderCli, RanksShareOneFolder) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--spawn", "2"})).exit_code, 0);
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.out.find("2 ranks"), std::string::npos) << more.out;
  expect_end(engine(quick_train({"--save-dir", dir(), "--spawn", "2"})), 73, {"holds a run"});
}

TEST_F(RunFolderCli, AnotherModelIsRefusedByItsName) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  expect_end(engine({"train", "--resume", dir(), "--model", "convnet"}), 78,
             {"was trained with --model mlp, asked for is convnet"});
}

TEST_F(RunFolderCli, AnImportIsNoRun) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  const std::string weights = folder_ / "w.safetensors", import = folder_ / "i.ckpt";
  const CommandResult exported = engine({"export", dir(), "-o", weights});
  EXPECT_NE(exported.out.find(" tensors of " + dir() + "/step-"), std::string::npos)
      << exported.out;
  ASSERT_EQ(engine({"import", weights, "-o", import, "--model", "mlp", "--dataset", "synthetic",
                    "--synthetic-shape", "6x6x1"})
                .exit_code,
            0);
  const std::vector<std::string> words{import + " is an import", "--init-from"};
  expect_end(engine({"train", "--resume", import}), 78, words);
  expect_end(engine(quick_train({"--resume", import})), 78, words);
}

TEST_F(RunFolderCli, AnotherOptimizerBringsItsOwnDefaults) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir()})).exit_code, 0);
  const std::vector<std::string> other{"--optimizer", "adamw", "--allow-change", "optimizer",
                                       "--epochs"};
  const auto resumed = [&](const std::string& what, const char* epochs) {
    std::vector<std::string> arguments{"train", "--resume", what};
    arguments.insert(arguments.end(), other.begin(), other.end());
    arguments.emplace_back(epochs);
    return engine(arguments);
  };
  fs::copy(io::find_newest_checkpoint(dir(), nullptr), folder_ / "alone.ckpt");
  const CommandResult file = resumed(folder_ / "alone.ckpt", "2");
  EXPECT_NE(file.out.find("adamw lr 0.001"), std::string::npos) << file.out << file.err;
  const CommandResult folder = resumed(dir(), "2");
  EXPECT_NE(folder.out.find("adamw lr 0.001"), std::string::npos) << folder.out << folder.err;
  expect_end(folder, 0, {"lr 0.05 -> 0.001 (default)", "weight-decay 0 -> 0.01 (default)"});
}

TEST_F(RunFolderCli, WithoutARecordItGoesOnAsItsSnapshotSays) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--lr", "0.03"})).exit_code, 0);
  fs::remove(dir() + "/run.json");
  expect_end(engine(quick_train({"--save-dir", dir()})), 73, {"a run without run.json"});
  const CommandResult more = engine({"train", "--resume", dir(), "--epochs", "2"});
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)"});
  EXPECT_EQ(epochs_of(dir()), 2);
}

TEST_F(RunFolderCli, InspectShowsTheModelOnceAndNumbersAsNumbers) {
  ASSERT_EQ(engine(quick_train({"--save-dir", dir(), "--keep-best", "loss"})).exit_code, 0);
  const CommandResult shown = engine({"inspect", dir()});
  EXPECT_EQ(shown.out.find("model  "), shown.out.rfind("model  ")) << shown.out;
  const std::size_t value = shown.out.find("best.value = ");
  ASSERT_NE(value, std::string::npos) << shown.out;
  EXPECT_LT(std::stod(shown.out.substr(value + 13)), 100) << shown.out;
  EXPECT_NE(shown.out.find(" by 1 rank,"), std::string::npos) << shown.out;
}

TEST_F(RunFolderCli, AnInvalidModelLeavesNoFolder) {
  test_support::write_text(folder_ / "m.toml", "[[layers]]\nkind = \"dense\"\nunits = 0\n");
  EXPECT_NE(engine(quick_train({"--save-dir", dir(), "--model", folder_ / "m.toml"})).exit_code, 0);
  EXPECT_FALSE(fs::exists(dir()));
}

TEST_F(RunFolderCli, ANameOfSeveralLinesIsShownAsOne) {
  const std::string name = folder_ / "a\nb";
  const CommandResult result = engine(quick_train({"--save-dir", name}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("a\\nb/step-"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("a\nb"), std::string::npos) << result.out;
}

TEST_F(RunFolderCli, EvalSaysWhatIsNoModel) {
  test_support::write_text(folder_ / "m.toml", "# layers\n");
  expect_end(engine({"eval", folder_ / "nosuch"}), 65, {"cannot open", "nosuch"});
  expect_end(engine({"eval", ""}), 65, {"is empty"});
  expect_end(engine({"eval", "/dev/null"}), 65, {"/dev/null: is not a regular file"});
  expect_end(engine({"eval", folder_ / "m.toml"}), 65, {"neither a checkpoint"});
}

class CsvRun : public RunFolderCli {
 protected:
  // Two classes, told apart by the sign.
  void write_table(const std::string& name, int rows) {
    std::string text;
    for (int i = 1; i <= rows; ++i)
      text += std::to_string(i % 2 == 0 ? i : -i) + (i % 2 == 0 ? ",a\n" : ",b\n");
    test_support::write_text(folder_ / name, text);
  }
  CommandResult run(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",
                                       "--model",
                                       "mlp",
                                       "--dataset",
                                       "csv",
                                       "--threads",
                                       "1",
                                       "--annotations",
                                       folder_ / "t.csv",
                                       "--batch-size",
                                       "8",
                                       "--save-dir",
                                       dir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return engine(arguments);
  }
};

TEST_F(CsvRun, OtherDataAreSaidByCountsAndFiles) {
  write_table("t.csv", 40);
  ASSERT_EQ(run({}).exit_code, 0);
  write_table("u.csv", 30);
  expect_end(engine({"train", "--resume", dir(), "--annotations", folder_ / "u.csv"}), 78,
             {"32 training samples then, 24 now", "t.csv -> ", "u.csv (--annotations)",
              "--allow-change data"});
  write_table("t.csv", 50);
  expect_end(engine({"train", "--resume", dir(), "--epochs", "2"}), 78,
             {"32 training samples then, 40 now", "t.csv has changed since"});
  const CommandResult eval = engine({"eval", dir(), "--split", "val"});
  expect_end(eval, 0, {"warning: the data differ from those of the run"});
  EXPECT_NE(eval.out.find("(val): "), std::string::npos) << eval.out;
}

TEST_F(CsvRun, ALimitIsOfTheRunsDataToo) {
  write_table("t.csv", 40);
  ASSERT_EQ(run({"--limit", "20"}).exit_code, 0);
  const CommandResult eval = engine({"eval", dir()});
  EXPECT_EQ(eval.exit_code, 0);
  EXPECT_EQ(eval.err.find("warning"), std::string::npos) << eval.err;
  const CommandResult training = engine({"eval", dir(), "--split", "train"});
  EXPECT_NE(training.out.find("/20)"), std::string::npos) << training.out;
}

}  // namespace
