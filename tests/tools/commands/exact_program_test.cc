// The real program: synchronized BatchNorm leaves nothing for verify, and canonical order the same
// bits on every backend.
#include <gtest/gtest.h>

#include "tests/support/test_support.h"

namespace {

using test_support::CommandResult;
using test_support::TemporaryDirectory;
using Words = std::vector<std::string>;

CommandResult train_exact(const std::string& folder, const Words& options) {
  Words argv = {
      test_support::engine_binary(), "train", "--model", "convnet", "--dataset", "synthetic",
      "--synthetic-shape",           "8x8x1"};
  argv.insert(argv.end(), {"--synthetic-size", "75", "--batch-size", "20", "--steps", "6",
                           "--momentum", "0.9", "--eval-every", "0"});
  argv.insert(argv.end(), {"--save-rank-models", "--save-dir", folder});
  argv = test_support::overridden(argv, options);
  return test_support::run_command(argv);
}

CommandResult verify(const std::string& a, const std::string& b, const Words& more = {}) {
  Words argv = {test_support::engine_binary(), "verify", a, b};
  argv = test_support::overridden(argv, more);
  return test_support::run_command(argv);
}

std::string model_of(const std::string& folder, int rank) {
  return folder + "/final_model_rank_" + std::to_string(rank) + ".ckpt";
}

TEST(SyncBn, LeavesNothingForVerify) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_exact(folder / "plain", {"--spawn", "2", "--threads", "1"}).exit_code, 0);
  const CommandResult plain = verify(model_of(folder / "plain", 0), model_of(folder / "plain", 1));
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_NE(plain.err.find("in sync except BN: try --sync-bn"), std::string::npos) << plain.err;

  const CommandResult result =
      train_exact(folder / "sync", {"--spawn", "2", "--threads", "1", "--sync-bn"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("sync-bn of 2 layers"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("global batch 20 = 2 ranks x 1 device x 10 x 1"), std::string::npos)
      << result.out;
  const CommandResult same = verify(model_of(folder / "sync", 0), model_of(folder / "sync", 1));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.out, "");
}

TEST(SyncBn, OfDevicesAndOfHybridsIsThatOfRanks) {
  const TemporaryDirectory folder;
  const Words options{"--threads", "1", "--sync-bn", "--grad-accum", "2"};
  const auto run = [&](const char* name, Words group) {
    group.insert(group.end(), options.begin(), options.end());
    return train_exact(folder / name, group);
  };
  ASSERT_EQ(run("ranks", {"--spawn", "4"}).exit_code, 0);
  const CommandResult devices = run("devices", {"--devices", "cpu:0,cpu:1,cpu:2,cpu:3"});
  ASSERT_EQ(devices.exit_code, 0) << devices.err;
  const CommandResult hybrid =
      run("hybrid", {"--spawn", "2", "--devices", "cpu:0,cpu:1", "--batch-size", "16"});
  ASSERT_EQ(hybrid.exit_code, 0) << hybrid.err;
  EXPECT_NE(hybrid.out.find("global batch 16 = 2 ranks x 2 devices x 2 x 2"), std::string::npos)
      << hybrid.out;
  ASSERT_EQ(run("hybrid20", {"--spawn", "2", "--devices", "cpu:0,cpu:1"}).exit_code, 0);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(verify(model_of(folder / "ranks", r), model_of(folder / "devices", r)).exit_code, 0)
        << r;
    EXPECT_EQ(verify(model_of(folder / "ranks", r), model_of(folder / "hybrid20", r)).exit_code, 0)
        << r;
  }
}

// The gradients' thread and the statistics use two communicators at the same time, on every backend
// that this machine has.
TEST(SyncBn, RunsBesideOverlappedGradientsOnEveryBackend) {
  const TemporaryDirectory folder;
  const std::string reference = model_of(folder / "inproc", 0);
  ASSERT_EQ(train_exact(folder / "inproc", {"--spawn", "3", "--backend", "inproc", "--threads", "1",
                                            "--sync-bn", "--bucket-cap-mb", "0.01"})
                .exit_code,
            0);
  for (const char* backend : {"shm", "socket", "gloo", "zmq"}) {
    const CommandResult result =
        train_exact(folder / backend, {"--spawn", "3", "--backend", backend, "--threads", "1",
                                       "--sync-bn", "--bucket-cap-mb", "0.01", "--timeout", "30"});
    if (result.exit_code == 78 && result.err.find("not in this build") != std::string::npos)
      continue;
    ASSERT_EQ(result.exit_code, 0) << backend << ": " << result.err;
    for (int r = 0; r < 3; ++r)
      EXPECT_EQ(verify(reference, model_of(folder / backend, r)).exit_code, 0)
          << backend << " " << r;
  }
}

TEST(Canonical, IsTheSameBitsForAnyWorldOnEveryBackend) {
  const TemporaryDirectory folder;
  const Words canonical{"--reduction-order", "canonical"};
  const auto run = [&](const std::string& name, Words group) {
    group.insert(group.end(), canonical.begin(), canonical.end());
    return train_exact(folder / name, group);
  };
  const CommandResult one = run("one", {"--threads", "2"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const std::vector<std::pair<std::string, std::string>> groups{
      {"2", "gloo"}, {"3", "zmq"},  {"4", "socket"}, {"8", "shm"}, {"5", "inproc"},
      {"6", "zmq"},  {"7", "gloo"}, {"5", "socket"}, {"3", "shm"}};
  for (const auto& [ranks, backend] : groups) {
    const std::string name = backend + ranks;
    const CommandResult result =
        run(name, {"--spawn", ranks, "--backend", backend, "--threads", "1", "--timeout", "30"});
    if (result.exit_code == 78 && result.err.find("not in this build") != std::string::npos)
      continue;
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    const CommandResult same = verify(model_of(folder / "one", 0), model_of(folder / name, 0));
    EXPECT_EQ(same.exit_code, 0) << name << ": " << same.err;
    const CommandResult last =
        verify(model_of(folder / "one", 0), model_of(folder / name, std::stoi(ranks) - 1));
    EXPECT_EQ(last.exit_code, 0) << name << ": " << last.err;
  }
  const CommandResult devices = run("devices", {"--spawn", "2", "--devices", "cpu:0,cpu:1"});
  ASSERT_EQ(devices.exit_code, 0) << devices.err;
  EXPECT_EQ(verify(model_of(folder / "one", 0), model_of(folder / "devices", 0)).exit_code, 0);
}

TEST(Canonical, MoreRanksThanShardsAreOneClearLine) {
  const TemporaryDirectory folder;
  const CommandResult result = train_exact(
      folder / "x", {"--spawn", "3", "--reduction-order", "canonical", "--reduction-shards", "2"});
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_NE(result.err.find("2 shards, too few for a world of 3 ranks"), std::string::npos)
      << result.err;
}

TEST(Layers, AModelFileMayNameSyncBatchNorm) {
  const TemporaryDirectory folder;
  const auto model = [&](const char* name, const std::string& kind) {
    test_support::write_text(
        folder / name,
        "[[layer]]\nkind = \"conv2d\"\nname = \"c\"\nout_channels = 3\n[[layer]]\nkind = \"" +
            kind +
            "\"\nname = \"n\"\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = "
            "\"fc\"\n"
            "out = \"classes\"\n");
    return folder / name;
  };
  const Words group{"--spawn", "2", "--threads", "1"};
  const auto run = [&](const char* name, const std::string& file, bool option) {
    Words words = group;
    words.insert(words.end(), {"--model", file});
    if (option) words.emplace_back("--sync-bn");
    return train_exact(folder / name, words);
  };
  const CommandResult named = run("named", model("named.toml", "sync_batch_norm2d"), false);
  ASSERT_EQ(named.exit_code, 0) << named.err;
  ASSERT_EQ(run("option", model("option.toml", "batch_norm2d"), true).exit_code, 0);
  EXPECT_EQ(verify(model_of(folder / "named", 0), model_of(folder / "option", 1)).exit_code, 0);
}

}  // namespace
