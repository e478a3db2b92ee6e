// --devices: several replicas in one process are the same training as so many ranks, bit for bit.
#include <gtest/gtest.h>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

CommandResult train_replicas(const std::string& folder, const std::vector<std::string>& group) {
  return call(
      "train --model convnet --dataset synthetic --synthetic-size 300 --batch-size 50 "
      "--threads 1 --momentum 0.9 --save-rank-models --save-dir",
      folder, group);
}

void expect_same_models(const std::string& a, const std::string& b, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const std::string name = "/final_model_rank_" + std::to_string(r) + ".ckpt";
    expect_success(call("verify", a + name, b + name));
  }
}

TEST(Devices, OfOneProcessAreRanks) {
  const TemporaryDirectory folder;
  expect_success(train_replicas(folder / "ranks", {"--spawn", "3"}));
  const CommandResult devices =
      expect_success(train_replicas(folder / "devices", {"--devices", "cpu:0,cpu:1,cpu:2"}));
  EXPECT_CONTAINS(devices.out, "backend inproc");
  expect_same_models(folder / "ranks", folder / "devices", 3);
}

TEST(Devices, OfSeveralProcessesAreRanks) {
  const TemporaryDirectory folder;
  expect_success(train_replicas(folder / "ranks", {"--spawn", "4"}));
  const CommandResult hybrid = expect_success(
      train_replicas(folder / "hybrid", {"--spawn", "2", "--devices", "cpu:0,cpu:1"}));
  expect_same_models(folder / "ranks", folder / "hybrid", 4);
}

TEST(Devices, ThatMakeNoSenseAreRefused) {
  const TemporaryDirectory folder;
  const CommandResult twice = train_replicas(folder / "x", {"--devices", "cpu:0,cpu:0"});
  EXPECT_EQ(twice.exit_code, 78);
  EXPECT_CONTAINS(twice.err, "cpu:0,cpu:0");
  const CommandResult wrong_backend =
      train_replicas(folder / "x", {"--devices", "cpu:0,cpu:1", "--backend", "shm"});
  EXPECT_EQ(wrong_backend.exit_code, 78);
  EXPECT_CONTAINS(wrong_backend.err, "--backend shm");
}

}  // namespace
