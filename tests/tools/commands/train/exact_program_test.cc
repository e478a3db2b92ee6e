// The real program: synchronized BatchNorm leaves nothing for verify, and canonical order the same
// bits on every backend.
#include <gtest/gtest.h>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using test_support::argv;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;
using Words = std::vector<std::string>;

CommandResult train_exact(const std::string& folder, const Words& options) {
  return engine(test_support::overridden(
      argv("train --model convnet --dataset synthetic --synthetic-shape 8x8x1 --synthetic-size 75 "
           "--batch-size 20 --steps 6 --momentum 0.9 --eval-every 0 --save-rank-models --save-dir",
           folder),
      options));
}

CommandResult verify(const std::string& a, const std::string& b, const Words& more = {}) {
  return engine(test_support::overridden({"verify", a, b}, more));
}

std::string model_of(const std::string& folder, int rank) {
  return folder + "/final_model_rank_" + std::to_string(rank) + ".ckpt";
}

TEST(SyncBn, LeavesNothingForVerify) {
  const TemporaryDirectory folder;
  expect_success(train_exact(folder / "plain", {"--spawn", "2", "--threads", "1"}));
  const CommandResult plain = verify(model_of(folder / "plain", 0), model_of(folder / "plain", 1));
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_VALUES(plain.err, "except BN --sync-bn");

  const CommandResult result =
      expect_success(train_exact(folder / "sync", {"--spawn", "2", "--threads", "1", "--sync-bn"}));
  EXPECT_CONTAINS(result.out, "sync-bn of 2 layers");
  EXPECT_CONTAINS(result.out, "global batch 20 = 2 ranks x 1 device x 10 x 1");
  const CommandResult same =
      expect_success(verify(model_of(folder / "sync", 0), model_of(folder / "sync", 1)));
  EXPECT_EQ(same.out, "");
}

TEST(SyncBn, OfDevicesAndOfHybridsIsThatOfRanks) {
  const TemporaryDirectory folder;
  const Words options{"--threads", "1", "--sync-bn", "--grad-accum", "2"};
  const auto run = [&](const char* name, Words group) {
    group.insert(group.end(), options.begin(), options.end());
    return train_exact(folder / name, group);
  };
  expect_success(run("ranks", {"--spawn", "4"}));
  const CommandResult devices =
      expect_success(run("devices", {"--devices", "cpu:0,cpu:1,cpu:2,cpu:3"}));
  const CommandResult hybrid = expect_success(
      run("hybrid", {"--spawn", "2", "--devices", "cpu:0,cpu:1", "--batch-size", "16"}));
  EXPECT_CONTAINS(hybrid.out, "global batch 16 = 2 ranks x 2 devices x 2 x 2");
  expect_success(run("hybrid20", {"--spawn", "2", "--devices", "cpu:0,cpu:1"}));
  for (int r = 0; r < 4; ++r) {
    expect_success(verify(model_of(folder / "ranks", r), model_of(folder / "devices", r)));
    expect_success(verify(model_of(folder / "ranks", r), model_of(folder / "hybrid20", r)));
  }
}

// The gradients' thread and the statistics use two communicators at the same time, on every backend
// that this machine has.
TEST(SyncBn, RunsBesideOverlappedGradientsOnEveryBackend) {
  const TemporaryDirectory folder;
  const std::string reference = model_of(folder / "inproc", 0);
  expect_success(train_exact(folder / "inproc", {"--spawn", "3", "--backend", "inproc", "--threads",
                                                 "1", "--sync-bn", "--bucket-cap-mb", "0.01"}));
  for (const char* backend : {"shm", "socket", "gloo", "zmq"}) {
    const CommandResult result =
        train_exact(folder / backend, {"--spawn", "3", "--backend", backend, "--threads", "1",
                                       "--sync-bn", "--bucket-cap-mb", "0.01", "--timeout", "30"});
    if (result.exit_code == 78 && result.err.find("not in this build") != std::string::npos)
      continue;
    ASSERT_EQ(result.exit_code, 0) << backend << ": " << result.err;
    for (int r = 0; r < 3; ++r) expect_success(verify(reference, model_of(folder / backend, r)));
  }
}

TEST(Encrypt, ATrainingRunHasTheBitsOfAPlainOneOnEveryBackend) {
  const TemporaryDirectory folder;
  for (const std::string backend : {"socket", "gloo", "zmq"}) {
    const auto run = [&](const std::string& encrypt) {
      return train_exact(folder / (backend + encrypt),
                         {"--spawn", "2", "--backend", backend, "--encrypt", encrypt, "--threads",
                          "1", "--timeout", "30"});
    };
    const CommandResult plain = run("off");
    if (plain.exit_code == 78 && plain.err.find("not in this build") != std::string::npos) continue;
    ASSERT_EQ(plain.exit_code, 0) << backend << ": " << plain.err;
    EXPECT_CONTAINS(plain.out, "; links not encrypted: --encrypt off");
    const CommandResult encrypted = expect_success(run("on"));
    EXPECT_CONTAINS(encrypted.out, "; links encrypted (");
    EXPECT_CONTAINS(encrypted.out, "): --encrypt on");
    for (int r = 0; r < 2; ++r)
      expect_success(
          verify(model_of(folder / (backend + "off"), r), model_of(folder / (backend + "on"), r)));
  }
}

TEST(Canonical, IsTheSameBitsForAnyWorldOnEveryBackend) {
  const TemporaryDirectory folder;
  const Words canonical{"--reduction-order", "canonical"};
  const auto run = [&](const std::string& name, Words group) {
    group.insert(group.end(), canonical.begin(), canonical.end());
    return train_exact(folder / name, group);
  };
  const CommandResult one = expect_success(run("one", {"--threads", "2"}));
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
    expect_success(verify(model_of(folder / "one", 0), model_of(folder / name, 0)));
    expect_success(
        verify(model_of(folder / "one", 0), model_of(folder / name, std::stoi(ranks) - 1)));
  }
  const CommandResult devices =
      expect_success(run("devices", {"--spawn", "2", "--devices", "cpu:0,cpu:1"}));
  expect_success(verify(model_of(folder / "one", 0), model_of(folder / "devices", 0)));
}

TEST(Canonical, MoreRanksThanShardsAreOneClearLine) {
  const TemporaryDirectory folder;
  const CommandResult result = train_exact(
      folder / "x", {"--spawn", "3", "--reduction-order", "canonical", "--reduction-shards", "2"});
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_VALUES(result.err, "2 shards 3 ranks");
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
  const CommandResult named =
      expect_success(run("named", model("named.toml", "sync_batch_norm2d"), false));
  expect_success(run("option", model("option.toml", "batch_norm2d"), true));
  expect_success(verify(model_of(folder / "named", 0), model_of(folder / "option", 1)));
}

}  // namespace
