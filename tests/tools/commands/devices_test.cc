// --devices: several replicas in one process are the same training as so many ranks, bit for bit.
#include <gtest/gtest.h>

#include "tests/support/test_support.h"

namespace {

using test_support::CommandResult;
using test_support::TemporaryDirectory;

CommandResult train_replicas(const std::string& folder, const std::vector<std::string>& group) {
  std::vector<std::string> argv = {test_support::engine_binary(),
                                   "train",
                                   "--model",
                                   "convnet",
                                   "--dataset",
                                   "synthetic",
                                   "--synthetic-size",
                                   "300",
                                   "--batch-size",
                                   "50",
                                   "--threads",
                                   "1",
                                   "--momentum",
                                   "0.9",
                                   "--save-rank-models",
                                   "--save-dir",
                                   folder};
  argv.insert(argv.end(), group.begin(), group.end());
  return test_support::run_command(argv);
}

void expect_same_models(const std::string& a, const std::string& b, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const std::string name = "/final_model_rank_" + std::to_string(r) + ".ckpt";
    const CommandResult result =
        test_support::run_command({test_support::engine_binary(), "verify", a + name, b + name});
    EXPECT_EQ(result.exit_code, 0) << "rank " << r << ": " << result.err;
  }
}

TEST(Devices, OfOneProcessAreRanks) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_replicas(folder / "ranks", {"--spawn", "3"}).exit_code, 0);
  const CommandResult devices =
      train_replicas(folder / "devices", {"--devices", "cpu:0,cpu:1,cpu:2"});
  ASSERT_EQ(devices.exit_code, 0) << devices.err;
  EXPECT_NE(devices.out.find("backend inproc"), std::string::npos) << devices.out;
  expect_same_models(folder / "ranks", folder / "devices", 3);
}

TEST(Devices, OfSeveralProcessesAreRanks) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_replicas(folder / "ranks", {"--spawn", "4"}).exit_code, 0);
  const CommandResult hybrid =
      train_replicas(folder / "hybrid", {"--spawn", "2", "--devices", "cpu:0,cpu:1"});
  ASSERT_EQ(hybrid.exit_code, 0) << hybrid.err;
  expect_same_models(folder / "ranks", folder / "hybrid", 4);
}

TEST(Devices, ThatMakeNoSenseAreRefused) {
  const TemporaryDirectory folder;
  const CommandResult twice = train_replicas(folder / "x", {"--devices", "cpu:0,cpu:0"});
  EXPECT_EQ(twice.exit_code, 78);
  EXPECT_NE(twice.err.find("cpu:0,cpu:0"), std::string::npos) << twice.err;
  const CommandResult wrong_backend =
      train_replicas(folder / "x", {"--devices", "cpu:0,cpu:1", "--backend", "shm"});
  EXPECT_EQ(wrong_backend.exit_code, 78);
  EXPECT_NE(wrong_backend.err.find("--backend shm"), std::string::npos) << wrong_backend.err;
}

}  // namespace
