// --keep-best and --early-stop as users and scripts meet them: lines, metrics, the file `best`,
// refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

CommandResult train_for_best(const std::vector<std::string>& more) {
  std::vector<std::string> arguments =
      argv(engine_binary(),
           "train --model mlp --dataset synthetic --spawn 2 --lr 0.1 --batch-size 12 --threads 1 "
           "--seed 1 --log-every 0 --epochs 12 --synthetic-size 60 --synthetic-shape 6x6x1");
  arguments = test_support::overridden(arguments, more);
  return run_command(arguments);
}

// What follows `before` up to the end of the line, at its last place.
std::string last_after(const std::string& text, const std::string& before) {
  const std::size_t at = text.rfind(before);
  if (at == std::string::npos) return "";
  const std::size_t start = at + before.size();
  return text.substr(start, text.find('\n', start) - start);
}

TEST(KeepBest, IsToldNamedAndNeverPruned) {
  const TemporaryDirectory folder;
  const CommandResult result =
      expect_success(train_for_best({"--save-dir", folder / "run", "--keep-last", "1",
                                     "--keep-best", "loss", "--metrics", folder / "m.jsonl"}));
  const std::string reported = last_after(result.out, "Best so far: loss ");
  const std::string step = last_after(reported + "\n", " at step ");
  ASSERT_FALSE(step.empty()) << result.out;
  std::string name = test_support::read_text(folder / "run/best");
  name.erase(name.find('\n'));
  EXPECT_EQ(name, "step-" + std::string(8 - step.size(), '0') + step + ".ckpt");
  EXPECT_TRUE(fs::exists(folder / ("run/" + name)));
  EXPECT_NE(result.out.find("Test after step " + step + ": loss " +
                            reported.substr(0, reported.find(' '))),
            std::string::npos)
      << result.out;
  EXPECT_LE(std::count_if(fs::directory_iterator(folder / "run"), fs::directory_iterator(),
                          [](const auto& file) { return file.path().extension() == ".ckpt"; }),
            2);

  // The last evaluation that the metrics call the best.
  const std::string metrics = test_support::read_text(folder / "m.jsonl");
  const std::size_t mark = metrics.rfind(",\"best\":true}");
  ASSERT_NE(mark, std::string::npos) << metrics;
  const std::string line = metrics.substr(metrics.rfind('\n', mark) + 1);
  EXPECT_EQ(line.find("{\"schema\":1,\"event\":\"eval\",\"step\":" + step + ","), 0u) << line;
  const CommandResult eval = call("eval", folder / ("run/" + name));
  EXPECT_NE(eval.out.find("loss " + reported.substr(0, reported.find(' '))), std::string::npos)
      << eval.out;
}

TEST(KeepBest, IsOnByItselfWithAFolderAndCanBeSwitchedOff) {
  const TemporaryDirectory folder;
  const CommandResult on = train_for_best({"--save-dir", folder / "on"});
  EXPECT_CONTAINS(on.out, "\nBest so far: accuracy ");
  EXPECT_TRUE(fs::exists(folder / "on/best"));
  const CommandResult off = train_for_best({"--save-dir", folder / "off", "--keep-best", "none"}),
                      nowhere = train_for_best({});
  EXPECT_FALSE(fs::exists(folder / "off/best"));
  for (const CommandResult& result : {off, nowhere}) EXPECT_LACKS(result.out, "Best so far");
}

TEST(EarlyStop, SaysWhyAndExitsWithZero) {
  const CommandResult result = expect_success(
      train_for_best({"--epochs", "80", "--early-stop", "3", "--keep-best", "loss"}));
  program::expect_words(result.out, {" of 400: no improvement of loss in 3 evaluations\n",
                                     "\nStopped early after step ", "\nTraining completed in: "});
}

TEST(EarlyStop, NeedsEvaluations) {
  expect_error(train_for_best({"--early-stop", "3", "--eval-every", "0"}), 78,
               "--early-stop 3 --eval-every 0");
  expect_error(train_for_best({"--early-stop", "x"}), 78, "--early-stop is 'x'");
}

}  // namespace
