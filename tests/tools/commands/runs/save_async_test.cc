// --save-async: the same checkpoints, written beside the training; a failed write ends the run.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

CommandResult train_and_save(const std::string& folder, const std::vector<std::string>& more) {
  const std::vector<std::string> arguments =
      argv(engine_binary(),
           "train --model mlp --dataset synthetic --batch-size 32 --threads 1 --synthetic-size 320 "
           "--eval-every 0 --spawn 2 --keep-last 0 --save-dir",
           folder);
  return run_command(test_support::overridden(arguments, more), {}, 30'000);
}

TEST(SaveAsync, WritesTheSameCheckpointsAndSaysSo) {
  const TemporaryDirectory folder;
  const std::vector<std::string> steps{"--steps", "9", "--save-every", "2s"};
  std::vector<std::string> background = steps;
  background.push_back("--save-async");
  const CommandResult wait = train_and_save(folder / "wait", steps),
                      beside = train_and_save(folder / "beside", background);
  ASSERT_EQ(wait.exit_code, 0) << wait.err;
  ASSERT_EQ(beside.exit_code, 0) << beside.err;
  for (const char* step : {"2", "4", "6", "8", "9"}) {
    const std::string name = std::string("/step-0000000") + step + ".ckpt";
    EXPECT_CONTAINS(beside.out, "Saved step " + std::string(step) + ": ");
    expect_success(call("verify", (folder / "wait") + name, (folder / "beside") + name));
  }
}

TEST(SaveAsync, AFailedWriteEndsTheRunOnAllRanks) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  std::thread taker([&] {
    EXPECT_TRUE(test_support::eventually([&] { return fs::exists(run + "/latest"); }));
    fs::rename(run, folder / "away");
    std::ofstream(run) << "a file where the folder was";
  });
  const CommandResult result = train_and_save(
      run, {"--steps", "100000000", "--save-every", "20s", "--keep-last", "2", "--save-async"});
  taker.join();
  EXPECT_EQ(result.exit_code, 73) << result.err;
  EXPECT_CONTAINS(result.err, run);
  EXPECT_TRUE(fs::exists(folder / "away/latest"));
}

}  // namespace
