// `engine train` on the GPUs that the CPU plays: which device a rank takes, what is refused,
// snapshots that change devices.
#include <gtest/gtest.h>

#include "tests/support/test_support.h"
#include "tools/machine/device_choice.h"

namespace {

using test_support::CommandResult;
using test_support::TemporaryDirectory;

class DevicePrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto gpus = tools::gpu_lines();
    if (gpus.empty() || gpus.front().find("emulated") == std::string::npos)
      GTEST_SKIP() << "needs GPUs whose number can be set";
  }

  static CommandResult train(const std::string& gpus, const std::vector<std::string>& more,
                             std::map<std::string, std::string> environment = {}) {
    std::vector<std::string> argv{test_support::engine_binary(),
                                  "train",
                                  "--model",
                                  "mlp",
                                  "--dataset",
                                  "synthetic",
                                  "--synthetic-shape",
                                  "4x4x1",
                                  "--synthetic-size",
                                  "40",
                                  "--batch-size",
                                  "10",
                                  "--threads",
                                  "1",
                                  "--steps",
                                  "2",
                                  "--eval-every",
                                  "0"};
    argv.insert(argv.end(), more.begin(), more.end());
    environment["ENGINE_EMULATED_GPUS"] = gpus;
    return test_support::run_command(argv, environment, 60'000);
  }
  static void expect_start(const CommandResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(text), std::string::npos) << result.out;
  }
  static void expect_refused(const CommandResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 78) << result.out << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }
};

// Not after --rdzv-timeout.
TEST_F(DevicePrograms, ADeviceThatIsNotThereIsSaidBeforeTheOthersAreWaitedFor) {
  expect_refused(train("1", {"--device", "cuda:3", "--rank", "1", "--world-size", "2",
                             "--init-method", "tcp://127.0.0.1:1"}),
                 "--device: there is no cuda:3, 1 CUDA device is visible");
}

TEST_F(DevicePrograms, RanksTakeDevicesOfTheirOwn) {
  expect_start(train("2", {"--device", "cuda", "--spawn", "2"}), "cuda:0 (emulated GPU");
  expect_start(train("2", {"--gpu-devices", "1", "0"}), "cuda:1 (emulated GPU");
  expect_start(train("4", {"--spawn", "2", "--gpu-devices", "0-1", "--batch-size", "8"},
                     {{"ENGINE_ALLOW_SHARED_GPU", "1"}}),
               "global batch 8 = 2 ranks x 2 devices x 2 x 1");
  expect_start(train("2", {"--device", "cuda:1"}), "cuda:1 (emulated GPU");
}

TEST_F(DevicePrograms, AutoSaysWhatItTook) {
  expect_start(train("2", {}),
               "auto: local rank 0 of 1, 2 CUDA devices visible; --gpu-devices 0-1 uses all");
  expect_start(train("0", {}), "; auto: no CUDA device (");
  expect_start(train("1", {"--dtype", "f64"}), "auto: --dtype f64 is computed on the CPU");
  expect_start(train("1", {"--reduction-order", "canonical", "--reduction-shards", "2"}),
               "auto: --reduction-order canonical is computed on the CPU");
  EXPECT_EQ(train("1", {"--device", "cpu"}).out.find("auto: no"), std::string::npos);
  EXPECT_EQ(train("1", {"--device", "cuda"}).out.find("auto: local rank"), std::string::npos);
}

TEST_F(DevicePrograms, WhatCannotBeIsRefusedWithBothNumbers) {
  expect_refused(train("2", {"--device", "cuda", "--spawn", "3"}),
                 "3 ranks are on this host, but 2 CUDA devices are visible");
  expect_refused(train("2", {"--device", "cuda:1", "--spawn", "2"}),
                 "both chose the CUDA device GPU-");
  expect_refused(train("2", {"--spawn", "2", "--gpu-devices", "0", "1"}),
                 "both chose the CUDA device GPU-");
  expect_refused(train("2", {"--gpu-devices", "0,2"}),
                 "there is no cuda:2, 2 CUDA devices are visible");
  expect_refused(train("0", {"--device", "cuda"}), "--device cuda: no CUDA device");
  expect_refused(train("0", {"--amp", "bf16"}), "--amp bf16 is for CUDA devices: no CUDA device");
  expect_refused(train("1", {"--device", "cuda", "--compress", "bf16"}),
                 "--compress bf16 is computed on the CPU");
  expect_refused(train("1", {"--amp", "O2", "--device", "cpu"}), "expected off on the CPU");
  expect_refused(train("1", {"--device", "cuda", "--optimizer", "muon"}),
                 "--optimizer muon needs --device cpu: it has no step on CUDA devices");
}

TEST_F(DevicePrograms, PrecisionIsSaid) {
  expect_start(train("1", {"--device", "cuda", "--amp", "bf16"}), ", bf16");
  expect_start(train("1", {"--device", "cuda", "--amp", "tf32"}), ", tf32 products");
  expect_start(train("1", {"--device", "cuda", "--amp", "O1"}),
               ", f16 products, loss scale dynamic");
  expect_start(train("1", {"--device", "cuda", "--amp", "O2", "--loss-scale", "512"}),
               ", f16, loss scale 512");
}

TEST_F(DevicePrograms, SnapshotsChangeDevices) {
  const TemporaryDirectory folder;
  const CommandResult saved = train("2", {"--device", "cuda:1", "--save-dir", folder / "a"});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  const std::string snapshot = folder / "a/step-00000002.ckpt";
  const auto resume = [&](const std::string& gpus, const std::string& device,
                          const std::string& map) {
    return train(gpus,
                 {"--device", device, "--resume", snapshot, "--map-location", map, "--steps", "3"});
  };
  const std::string resumed = "resumed " + snapshot + " at step 2";
  expect_start(resume("1", "cuda", "auto"), resumed);  // cuda:1 is not there
  expect_start(resume("0", "cpu", "auto"), resumed);
  expect_start(resume("2", "cuda:1", "cuda:1=cuda:1"), resumed);
  expect_start(resume("2", "cuda:1", "cuda:1=cpu"), resumed);  // by way of host memory
  expect_refused(resume("2", "cuda:1", "cuda:1=cuda:0"),
                 "this rank computes on cuda:1 and can load arrays onto no other device");
  expect_refused(resume("1", "cpu", "cuda:1=cuda:0"),
                 "map-location sends arrays saved on cuda:1 to cuda:0");
  expect_refused(resume("1", "cuda", "cuda:0=cuda:0"), "map-location says nothing about cuda:1");
}

}  // namespace
