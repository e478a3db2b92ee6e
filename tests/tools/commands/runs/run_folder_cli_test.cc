// A run and its folder, as a user meets them: what used to lose work or to train something else in
// silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
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
  template <class... More>
  CommandResult train(const More&... more) const {
    return engine(quick_train(argv("--save-dir", dir(), more...)));
  }
  template <class... More>
  CommandResult resume(const More&... more) const {
    return call("train --resume", dir(), more...);
  }
  TemporaryDirectory folder_;
};

TEST_F(RunFolderCli, ASecondRunDoesNotTouchTheFirst) {
  expect_success(train("--epochs 4"));
  const std::string checkpoint = read_text(dir() + "/step-00000020.ckpt");
  expect_end(train("--epochs 1 --lr 0.1"), 73,
             {dir() + " holds a run (mlp on synthetic", "--resume", "--overwrite"});
  EXPECT_EQ(read_text(dir() + "/step-00000020.ckpt"), checkpoint);
  expect_end(train("--epochs 1 --overwrite"), 0, {"moved the run"});
  EXPECT_EQ(read_text(dir() + ".old-1/step-00000020.ckpt"), checkpoint);
  EXPECT_EQ(epochs_of(dir()), 1);
}

// A job that is killed while it reads its data has written no run.json.
TEST_F(RunFolderCli, AJobThatHasNotBegunToTrainIsNoRunAndDoesNotBlockOne) {
  const std::string unstarted = dir() + ": not begun run.lock log.txt, no run.json no checkpoint";
  for (const bool resumes : {false, true}) {
    fs::remove_all(dir());
    fs::create_directory(dir());
    test_support::write_text(dir() + "/log.txt", "2026-01-02T03:04:05.678Z waiting for rank 1\n");
    test_support::write_text(dir() + "/run.lock", "");
    expect_end(resume(), 78, {"--resume " + unstarted + " --save-dir " + dir()});
    for (const std::string command : {"top", "report", "eval"})
      expect_end(call(command, dir()), 65, {"error: " + unstarted});
    expect_success(resumes ? train("--resume auto") : train());
    EXPECT_EQ(epochs_of(dir()), 1);
    expect_success(call("top", dir()));
  }
}

TEST_F(RunFolderCli, ResumeNeedsOnlyTheFolder) {
  expect_success(train("--lr 0.03 --optimizer adamw"));
  const CommandResult more = resume("--epochs 2");
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)"});
  EXPECT_CONTAINS(more.out, "adamw lr 0.03");
  EXPECT_EQ(epochs_of(dir()), 2);
  const std::string record = read_text(dir() + "/run.json");
  EXPECT_CONTAINS(record, "epochs 1 -> 2 (--epochs)");
}

TEST_F(RunFolderCli, AnElasticRunOfOneHostNeedsOnlyItsFolderToo) {
  expect_success(train("--spawn 2 --elastic --rdzv-timeout 300"));
  expect_end(resume("--epochs 2"), 0, {"changed: epochs 1 -> 2"});
  EXPECT_EQ(epochs_of(dir()), 2);
  expect_end(train("--elastic --overwrite"), 78, {"--elastic MIN:MAX, 2:4, --spawn MAX"});
}

// As in PyTorch, whose first step makes the gradient the momentum.
TEST_F(RunFolderCli, AddedMomentumStartsFromZero) {
  expect_success(train("--momentum 0"));
  expect_end(resume("--epochs 2 --momentum 0.9"), 0,
             {"momentum 0 -> 0.9 (--momentum)", "no momentum optimizer: zero"});
  EXPECT_EQ(epochs_of(dir()), 2);
}

// Each kind of damage: the run goes on as without run.json, to the same bits.
TEST_F(RunFolderCli, ResumesWithADamagedRunJson) {
  expect_success(train("--lr 0.03 --optimizer adamw"));
  const std::string whole = read_text(dir() + "/run.json"), kept = folder_ / "kept";
  fs::copy(dir(), kept, fs::copy_options::recursive);
  fs::remove(dir() + "/run.json");
  expect_success(resume("--epochs 2"));
  const std::string expected = folder_ / "expected.ckpt";
  fs::copy(dir() + "/step-00000010.ckpt", expected);
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string(), whole + "}"}) {
    fs::remove_all(dir());
    fs::copy(kept, dir(), fs::copy_options::recursive);
    test_support::write_text(dir() + "/run.json", text);
    const CommandResult resumed = resume("--epochs 2");
    expect_end(resumed, 0, {dir() + "/run.json: invalid JSON", "kept as run.json.damaged-1"});
    EXPECT_EQ(read_text(dir() + "/run.json.damaged-1"), text);
    expect_success(call("verify", dir() + "/step-00000010.ckpt", expected));
  }
}

TEST_F(RunFolderCli, ABadValueOfRunJsonIsNamedWithItsFile) {
  expect_success(train());
  const std::string whole = read_text(dir() + "/run.json");
  const std::string before = "\"lr\":{\"value\":\"";
  const std::size_t value = whole.find(before) + before.size();
  for (const std::string bad : {"abc", "-1"}) {
    std::string text = whole;
    text.replace(value, text.find('"', value) - value, bad);
    test_support::write_text(dir() + "/run.json", text);
    expect_end(resume("--epochs 2"), 78,
               {"--lr is '" + bad + "' (from " + dir() + "/run.json:lr); expected a number"});
  }
}

TEST_F(RunFolderCli, AnotherExperimentIsRefusedWithBothValues) {
  expect_success(train());
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
  expect_end(resume("--epochs 2 --optimizer adamw --allow-change optimizer"), 0,
             {"changed: ", "optimizer sgd -> adamw"});
  expect_end(resume("--allow-change optimiser"), 78, {"did you mean 'optimizer'"});
}

// Else the advice leads to a run that ends for another reason.
TEST_F(RunFolderCli, OnlyChangesThatCanWorkAreSaidToBeAllowed) {
  expect_success(train());
  const std::vector<std::pair<std::string, std::string>> never{
      {"model", "convnet"}, {"dtype", "f64"}, {"synthetic-classes", "5"}};
  for (const auto& [name, value] : never) {
    const CommandResult refused = resume("--epochs 2", "--" + name, value);
    expect_end(refused, 78, {"asked for is " + value, "new run"});
    EXPECT_LACKS(refused.err, "--allow-change");
    EXPECT_NE(resume("--epochs 2", "--" + name, value, "--allow-change", name + ",data").exit_code,
              0)
        << name << " can be changed: say so";
  }
  expect_end(resume("--epochs 2 --synthetic-shape 8x8x1"), 78, {"--allow-change synthetic-shape"});
}

TEST_F(RunFolderCli, OtherDataAreRefused) {
  const std::string csv = folder_ / "a.csv";
  std::string rows = "x,y,label\n";
  for (int i = 0; i < 40; ++i)
    rows +=
        std::to_string(i % 7) + "," + std::to_string(i % 5) + ",c" + std::to_string(i % 2) + "\n";
  test_support::write_text(csv, rows);
  const std::vector<std::string> train = argv("train --model mlp --dataset csv --annotations", csv,
                                              "--batch-size 8 --threads 1 --save-dir", dir());
  expect_success(engine(train));
  rows.replace(rows.find("3,3,"), 4, "3,4,");
  test_support::write_text(csv, rows);
  expect_end(resume("--epochs 2"), 78, {dir() + " --allow-change data"});
  expect_success(resume("--epochs 2 --allow-change data"));
}

TEST_F(RunFolderCli, GoesOnFromAnyWorkingDirectory) {
  fs::create_directories(folder_ / "home/data/csv");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i % 7) + (i % 2 == 0 ? ",a\n" : ",b\n");
  test_support::write_text(folder_ / "home/data/csv/rows.csv", rows);
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "home");  // the data lie where no option says, in data/csv
  const CommandResult first =
      call("train --model mlp --dataset csv --batch-size 8 --threads 1 --save-dir", dir());
  fs::current_path(folder_.path());
  const CommandResult more = resume("--epochs 2");
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
  const CommandResult trained = expect_success(engine(first));
  const CommandResult before = expect_success(engine({"eval", dir()}));

  test_support::write_text(toml, "# edited\n" + layers);
  std::vector<std::string> again =
      quick_train(argv("--save-dir", dir(), "--resume auto --epochs 2"));
  again[2] = toml;
  expect_end(engine(again), 78, {dir() + " layers --allow-change model"});
  EXPECT_EQ(engine({"eval", dir()}).out, before.out);

  fs::remove(toml);
  EXPECT_EQ(engine({"eval", dir()}).out, before.out);
  expect_success(resume("--epochs 2"));
  EXPECT_EQ(epochs_of(dir()), 2);
}

TEST_F(RunFolderCli, MetricsOfAnEarlierRunStay) {
  const std::string file = folder_ / "m.jsonl";
  for (const char* lr : {"0.1", "0.2"})
    expect_success(engine(quick_train(argv("--metrics", file, "--lr", lr))));
  const std::string text = read_text(file);
  std::size_t starts = 0;
  for (std::size_t at = 0; (at = text.find("\"event\":\"start\"", at)) != std::string::npos; ++at)
    ++starts;
  EXPECT_EQ(starts, 2u) << text;
  expect_success(train("--metrics -"));
  EXPECT_CONTAINS(read_text(dir() + "/metrics.jsonl"), "\"event\":\"end\"");
}

TEST_F(RunFolderCli, AConfigurationDoesNotPointAtTheRunItCameFrom) {
  expect_success(train("--metrics", folder_ / "m.jsonl"));
  const std::string config = call("inspect", dir(), "--config").out;
  EXPECT_CONTAINS(config, "model = \"mlp\"");
  for (const char* key : {"save-dir", "metrics", "resume"})
    EXPECT_LACKS(config, key) << key << " in: ";
}

TEST_F(RunFolderCli, AConfigurationReadsBackWhatItPrints) {
  expect_success(train("--data-dir", std::string("a $HOME/${b}")));
  const std::string file = folder_ / "run.toml";
  test_support::write_text(file, call("inspect", dir(), "--config").out);
  expect_success(call("train --config", file, "--save-dir", dir() + "2"));
  EXPECT_EQ(call("inspect", dir() + "2", "--config").out, test_support::read_text(file));
}

TEST_F(RunFolderCli, CommandsTakeAFolder) {
  expect_success(train());
  expect_success(engine(quick_train({"--save-dir", dir() + "2"})));
  const CommandResult same = expect_success(engine({"verify", dir(), dir() + "2"}));
  const std::string file = fs::path(io::find_newest_checkpoint(dir(), nullptr)).filename().string();
  EXPECT_TRUE(same.err.starts_with("verify: " + dir() + ": its newest checkpoint, " + file +
                                   "\nverify: " + dir() + "2: its newest checkpoint, " + file +
                                   "\n"))
      << same.err;
  EXPECT_EQ(call("verify", dir(), dir() + "2", "--quiet").err, "");
  const CommandResult exported =
      expect_success(call("export", dir(), "-o", folder_ / "a.safetensors"));
  EXPECT_EQ(exported.err, "export: " + dir() + ": its best checkpoint, " + file + "\n");
  EXPECT_EQ(call("export", dir() + "/" + file, "-o", folder_ / "a.safetensors").err, "");
  const CommandResult shown = engine({"inspect", dir()});
  EXPECT_CONTAINS(shown.out, "started  ");
  expect_success(engine(quick_train({"--init-from", dir()})));
  fs::create_directories(folder_ / "empty");
  expect_end(engine({"eval", folder_ / "empty"}), 65, {"no checkpoint in"});
}

// The newest model may have diverged, so it does not replace the best one without a word.
TEST_F(RunFolderCli, ABestCheckpointThatIsMissingIsAnError) {
  expect_success(train("--epochs 2 --keep-last 0 --save-every 1"));
  const fs::path newest = io::find_newest_checkpoint(dir(), nullptr);
  test_support::write_text(dir() + "/best", "step-00000099.ckpt\n");
  const std::vector<std::string> words{dir() + ": `best` step-00000099.ckpt, not exist; newest " +
                                       newest.filename().string()};
  expect_end(call("eval", dir()), 65, words);
  expect_end(call("export", dir(), "-o", folder_ / "a.safetensors"), 65, words);
  expect_end(call("predict", dir(), folder_ / "a.png"), 65, words);
  expect_success(call("eval", newest.string(), "--threads 1"));
  expect_success(call("verify -q", dir(), dir()));
}

TEST_F(RunFolderCli, AutoMakesANewFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  expect_success(engine(quick_train(argv("--save-dir auto"))));
  expect_success(engine(quick_train(argv("--save-dir auto"))));
  fs::current_path(before);
  EXPECT_EQ(epochs_of(folder_ / "runs/mlp-synthetic-001"), 1);
  EXPECT_EQ(epochs_of(folder_ / "runs/mlp-synthetic-002"), 1);
}

TEST_F(RunFolderCli, AutoTwiceIsRefused) {
  expect_end(engine(quick_train(argv("--save-dir auto --resume auto"))), 78,
             {"--save-dir auto", "name the folder"});
}

TEST_F(RunFolderCli, ACheckpointOfTheRunIsGoneOnFromInItsFolder) {
  expect_success(train("--epochs 4 --save-every 1 --keep-last 0"));
  const std::string old = dir() + "/step-00000010.ckpt";
  const CommandResult more = call("train --resume", old, "--epochs 3 --lr 0.02");
  expect_end(more, 0,
             {"changed: epochs 4 -> 3 (--epochs)", "lr ",
              "10 checkpoints step 10 moved to " + dir() + "/given-up-1"});
  EXPECT_EQ(epochs_of(dir()), 3);
  EXPECT_TRUE(fs::exists(dir() + "/given-up-1/step-00000020.ckpt"));

  // Elsewhere it is only a checkpoint.
  fs::copy(old, folder_ / "alone.ckpt");
  const CommandResult alone = call("train --resume", folder_ / "alone.ckpt", "--epochs 3");
  expect_end(alone, 0, {"nothing will be saved"});
}

TEST_F(RunFolderCli, AnOldLatestDoesNotCostNewerCheckpoints) {
  expect_success(train("--epochs 4 --save-every 1 --keep-last 0"));
  const std::string passed_over =
      "skipped " + dir() + "/step-00000010.ckpt: `latest` step-00000020.ckpt newer";
  const std::vector<std::vector<std::string>> commands{
      {"inspect", dir()},
      {"verify", dir(), dir() + "/step-00000020.ckpt"},
      {"train", "--resume", dir(), "--epochs", "5"},
      quick_train(argv("--save-dir", dir(), "--resume auto --epochs 6"))};
  for (const std::vector<std::string>& command : commands) {
    test_support::write_text(dir() + "/latest", "step-00000010.ckpt\n");
    const CommandResult result = engine(command);
    if (command[0] != "train") {
      expect_end(result, 0, {passed_over});
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_LACKS(result.out, "resumed " + dir() + "/step-00000010.ckpt");
    EXPECT_CONTAINS(result.err, "step-00000010.ckpt: `latest` names it");
  }
  EXPECT_EQ(epochs_of(dir()), 6);
  EXPECT_FALSE(fs::exists(dir() + "/given-up-1"));
}

TEST_F(RunFolderCli, ARateThatDivergedAtOnceIsNotTheRuns) {
  expect_success(train("--lr 0.03"));
  const CommandResult diverged = resume("--epochs 9 --lr 1e6");
  expect_end(diverged, 79, {"continue with --resume " + dir() + "/step-00000005.ckpt"});
  const CommandResult more = resume("--epochs 2");
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)\n"});
  EXPECT_CONTAINS(more.out, "lr 0.03");
  EXPECT_CONTAINS(read_text(dir() + "/run.json"), "1e+06");  // the start is told
  expect_end(call("train --resume", dir() + "/step-00000005.ckpt", "--epochs 2 --lr 0.01"), 0,
             {"given-up-1"});
}

TEST_F(RunFolderCli, ARunWithoutACheckpointBeginsAnewAndSaysSo) {
  expect_success(train("--lr 0.03"));
  for (const char* name : {"/step-00000005.ckpt", "/latest", "/best"}) fs::remove(dir() + name);
  expect_end(resume("--lr 0.01"), 0,
             {dir() + " no checkpoint yet: step 0", "changed: lr 0.03 -> 0.01 (--lr)"});
  EXPECT_CONTAINS(read_text(dir() + "/run.json"), "lr 0.03 -> 0.01");
}

TEST_F(RunFolderCli, OtherDataThatAreAllowedAreTold) {
  std::string rows = "x,y,label\n";
  for (int i = 0; i < 40; ++i)
    rows +=
        std::to_string(i % 7) + "," + std::to_string(i % 5) + ",c" + std::to_string(i % 2) + "\n";
  test_support::write_text(folder_ / "a.csv", rows);
  test_support::write_text(folder_ / "b.csv", rows + rows.substr(rows.find('\n') + 1));
  expect_success(call("train --model mlp --dataset csv --annotations", folder_ / "a.csv",
                      "--batch-size 8 --threads 1 --save-dir", dir()));
  expect_end(resume("--annotations", folder_ / "b.csv", "--allow-change data --epochs 2"), 0,
             {"changed: data " + (folder_ / "a.csv") + " (32 train, 8 test) -> " +
              (folder_ / "b.csv") + " (64 train, 16 test), epochs 1 -> 2"});
  EXPECT_CONTAINS(read_text(dir() + "/run.json"), "(64 train, 16 test)");
}

TEST_F(RunFolderCli, AnEarlyStopSaysHowToGoOn) {
  const std::vector<std::string> train =
      quick_train(argv("--save-dir", dir(), "--epochs 90 --early-stop 1:0.9"));
  expect_success(engine(train));
  const CommandResult again = expect_success(resume());
  program::expect_words(again.out, {"nothing left", "--early-stop 2 continues it"});
  expect_end(resume("--early-stop 2"), 0, {"changed: early-stop"});
}

TEST_F(RunFolderCli, WhatIsInTheWayOfSavingIsSaidBeforeTheStart) {
  expect_success(train());
  fs::remove(dir() + "/latest");
  fs::create_directories(dir() + "/latest/in the way");
  expect_end(resume("--epochs 2"), 73, {"cannot save in folder " + dir(), "latest folder"});
}

TEST_F(RunFolderCli, RanksShareOneFolder) {
  expect_success(train("--spawn 2"));
  const CommandResult more = expect_success(resume("--epochs 2"));
  EXPECT_CONTAINS(more.out, "2 ranks");
  expect_end(train("--spawn 2"), 73, {"holds a run"});
}

TEST_F(RunFolderCli, AnImportIsNoRun) {
  expect_success(train());
  const std::string weights = folder_ / "w.safetensors", import = folder_ / "i.ckpt";
  const CommandResult exported = call("export", dir(), "-o", weights);
  EXPECT_CONTAINS(exported.out, " tensors of " + dir() + "/step-");
  expect_success(call("import", weights, "-o", import,
                      "--model mlp --dataset synthetic --synthetic-shape 6x6x1"));
  const std::vector<std::string> words{import + " is an import", "--init-from"};
  expect_end(call("train --resume", import), 78, words);
  expect_end(engine(quick_train({"--resume", import})), 78, words);
}

TEST_F(RunFolderCli, AnotherOptimizerBringsItsOwnDefaults) {
  expect_success(train());
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
  EXPECT_CONTAINS(file.out, "adamw lr 0.001") << file.err;
  const CommandResult folder = resumed(dir(), "2");
  EXPECT_CONTAINS(folder.out, "adamw lr 0.001") << folder.err;
  expect_end(folder, 0, {"lr 0.05 -> 0.001 (default)", "weight-decay 0 -> 0.01 (default)"});
}

TEST_F(RunFolderCli, WithoutARecordItGoesOnAsItsCheckpointSays) {
  expect_success(train("--lr 0.03"));
  fs::remove(dir() + "/run.json");
  expect_end(train(), 73, {"a run without run.json"});
  const CommandResult more = resume("--epochs 2");
  expect_end(more, 0, {"changed: epochs 1 -> 2 (--epochs)"});
  EXPECT_EQ(epochs_of(dir()), 2);
}

TEST_F(RunFolderCli, InspectShowsTheModelOnceAndNumbersAsNumbers) {
  expect_success(train("--keep-best loss"));
  const CommandResult shown = engine({"inspect", dir()});
  EXPECT_EQ(shown.out.find("model  "), shown.out.rfind("model  ")) << shown.out;
  const std::size_t value = shown.out.find("best.value = ");
  ASSERT_NE(value, std::string::npos) << shown.out;
  EXPECT_LT(std::stod(shown.out.substr(value + 13)), 100) << shown.out;
  EXPECT_CONTAINS(shown.out, " by 1 rank,");
}

TEST_F(RunFolderCli, AnInvalidModelLeavesNoFolder) {
  test_support::write_text(folder_ / "m.toml", "[[layers]]\nkind = \"dense\"\nunits = 0\n");
  EXPECT_NE(train("--model", folder_ / "m.toml").exit_code, 0);
  EXPECT_FALSE(fs::exists(dir()));
}

TEST_F(RunFolderCli, ANameOfSeveralLinesIsShownAsOne) {
  const std::string name = folder_ / "a\nb";
  const CommandResult result = expect_success(engine(quick_train({"--save-dir", name})));
  EXPECT_CONTAINS(result.out, "a\\nb/step-");
  EXPECT_LACKS(result.out, "a\nb");
}

TEST_F(RunFolderCli, EvalSaysWhatIsNoModel) {
  test_support::write_text(folder_ / "m.toml", "# layers\n");
  expect_end(engine({"eval", folder_ / "nosuch"}), 65, {"cannot open", "nosuch"});
  expect_end(call("eval", std::string("")), 65, {"is empty"});
  expect_end(call("eval /dev/null"), 65, {"/dev/null regular"});
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
    return call("train --model mlp --dataset csv --threads 1 --annotations", folder_ / "t.csv",
                "--batch-size 8 --save-dir", dir(), more);
  }
};

TEST_F(CsvRun, OtherDataAreSaidByCountsAndFiles) {
  write_table("t.csv", 40);
  expect_success(run({}));
  write_table("u.csv", 30);
  expect_end(resume("--annotations", folder_ / "u.csv"), 78,
             {"32 training samples then, 24 now", "t.csv -> ", "u.csv (--annotations)",
              "--allow-change data"});
  write_table("t.csv", 50);
  expect_end(resume("--epochs 2"), 78,
             {"32 training samples then, 40 now", "t.csv has changed since"});
  const CommandResult eval = call("eval", dir(), "--split val");
  expect_end(eval, 0, {"warning differ"});
  EXPECT_CONTAINS(eval.out, "(val): ");
}

TEST_F(CsvRun, ALimitIsOfTheRunsDataToo) {
  write_table("t.csv", 40);
  expect_success(run({"--limit", "20"}));
  const CommandResult eval = expect_success(engine({"eval", dir()}));
  EXPECT_LACKS(eval.err, "warning");
  const CommandResult training = call("eval", dir(), "--split train");
  EXPECT_CONTAINS(training.out, "/20)");
}

}  // namespace
