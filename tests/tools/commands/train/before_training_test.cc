// What `engine train` does instead of training: --print-config, --dry-run, --lr-find.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::expect_words;
using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

TEST(PrintConfig, IsReadBackAsTheSameConfiguration) {
  const TemporaryDirectory folder;
  const std::string save = folder / "a$b ${HOME} \"c\"";
  const std::vector<std::vector<std::string>> cases{
      {},
      {"--steps", "7", "--lr", "1e-3", "--optimizer", "adamw", "--weight-decay", "0.1"},
      {"--save-dir", save, "--save-every", "3s", "--keep-best", "loss"},
      {"--grad-accum", "2", "--spawn", "2", "--sync", "diloco", "--sync-every", "3",
       "--no-outer-nesterov"},
      {"--lr-schedule", "step", "--lr-milestones", "1,2", "--no-shuffle", "--gpu-devices", "none"},
      {"--devices", "cpu:0,cpu:1", "--augment", "crop,flip", "--sync-bn", "--early-stop", "3:0.01"},
      {"--spawn", "3", "--elastic", "--elastic-batch", "scale", "--reduction", "sum"}};
  for (const std::vector<std::string>& more : cases) {
    std::vector<std::string> arguments = quick_train(more);
    arguments.emplace_back("--print-config");
    const CommandResult first = expect_success(engine(arguments));
    test_support::write_text(folder / "config.toml", first.out);
    const CommandResult again =
        expect_success(call("train --config", folder / "config.toml", "--print-config"));
    EXPECT_EQ(again.out, first.out);
  }
  EXPECT_FALSE(std::filesystem::exists(save));
}

TEST(PrintConfig, TrainsWhatItWasAskedFor) {
  const TemporaryDirectory folder;
  const std::vector<std::string> more{"--steps", "5", "--lr", "0.3", "--seed", "3"};
  std::vector<std::string> print = quick_train(more), whole = quick_train(more);
  print.emplace_back("--print-config");
  test_support::write_text(folder / "config.toml", engine(print).out);
  for (const char* word : {"--metrics", "--progress"}) whole.emplace_back(word);
  whole.insert(whole.end() - 1, folder / "a.jsonl");
  whole.emplace_back("never");
  expect_success(engine(whole));
  expect_success(call("train -c", folder / "config.toml", "--metrics", folder / "b.jsonl"));
  const auto loss = [&](const std::string& file) {
    const std::string text = test_support::read_text(file);
    const std::size_t at = text.find("\"loss\":");
    return at == std::string::npos ? "none in " + text : text.substr(at, text.find(',', at) - at);
  };
  EXPECT_EQ(loss(folder / "a.jsonl"), loss(folder / "b.jsonl"));
  EXPECT_CONTAINS(loss(folder / "a.jsonl"), "\"loss\":");
}

TEST(PrintConfig, RefusesWhatATrainingWouldRefuse) {
  expect_error(call("train --model mlp --print-config"), 78, "no data set");
  std::vector<std::string> arguments = quick_train(argv("--lr -1 --print-config"));
  expect_error(engine(arguments), 78, "--lr is '-1'");
  arguments = quick_train(argv("--dry-run --print-config"));
  expect_error(engine(arguments), 2, "--print-config");
}

TEST(DryRun, ShowsModelMemoryAndOptionsAndWritesNothing) {
  const TemporaryDirectory folder;
  const CommandResult result = expect_success(
      engine(argv("train --model convnet --dataset synthetic --synthetic-shape 28x28x1 "
                  "--batch-size 32 --spawn 2 --threads 1 --sync params --sync-every 4 --save-dir",
                  folder / "run", "--metrics", folder / "m.jsonl", "--dry-run"),
             {{"ENGINE_SEED", "9"}}));
  expect_words(result.out,
               {"2 ranks x", "Averaging: ", "conv2d", "total", "Memory (MiB)", "activations",
                "sync-every", "--sync-every", "ENGINE_SEED", "default", "A dry run:"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << result.out;
}

TEST(DryRun, CountsParametersAndOperations) {
  const CommandResult result = expect_success(
      call("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --dry-run --threads 1"));
  // "engine 0.1.0: mlp (12,345 parameters, f32)" and the table's total agree.
  const std::size_t open = result.out.find(" ("), end = result.out.find(" parameters", open);
  ASSERT_NE(end, std::string::npos) << result.out;
  const std::string parameters = result.out.substr(open + 2, end - open - 2);
  const std::size_t total = result.out.find("\ntotal ");
  ASSERT_NE(total, std::string::npos) << result.out;
  const std::string line =
      result.out.substr(total + 1, result.out.find('\n', total + 1) - total - 1);
  EXPECT_CONTAINS(line, " " + parameters + " ");
}

// Canziani et al., 2016, count a ResNet's multiplications and additions as one: 0.556 G of them
// here.
TEST(DryRun, CountsTheOperationsOfAResNet) {
  const CommandResult result = expect_success(engine(
      {"train", "--model", "resnet18-cifar", "--dataset", "synthetic", "--synthetic-shape",
       "32x32x3", "--synthetic-size", "8", "--batch-size", "2", "--dry-run", "--threads", "1"}));
  expect_words(result.out, {" 11,173,962  1110.845\n"});
}

TEST(LrFind, PrintsTheCurveAndASuggestionAndKeepsNothing) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments =
      quick_train(argv("--lr-find 1e-4:100 --steps 60 --save-dir", folder / "run", "--metrics",
                       folder / "m.jsonl", "--spawn 2"));
  const CommandResult result = expect_success(engine(arguments));
  expect_words(result.out, {"smooth", "fastest at lr ", "Suggestion: --lr "});
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  const std::string metrics = test_support::read_text(folder / "m.jsonl");
  expect_words(metrics, {"\"event\":\"step\",\"step\":1,", "\"lr\":1e-04,", "\"event\":\"lr_find\"",
                         "\"suggestion\":"});
  expect_success(engine(quick_train(argv("--lr-find 1e-4:100 --steps 60"))));
}

TEST(LrFind, RefusesWhatDoesNotGoWithIt) {
  expect_error(engine(quick_train(argv("--lr-find 1:0.1"))), 78, "--lr-find is '1:0.1'");
  expect_error(engine(quick_train(argv("--lr-find --steps 3"))), 78, "expected at least 10");
  expect_error(engine(quick_train(argv("--lr-find --spawn 2 --elastic"))), 78, "--elastic");
  expect_error(engine(quick_train(argv("--lr-find --dry-run"))), 2, "--dry-run");
}

TEST(DryRun, FailsAsTheTrainingWould) {
  expect_error(call("train --model convnet --dataset mnist --data-dir /nowhere/at/all --dry-run"),
               65, "/nowhere/at/all");
}

}  // namespace
