// `engine train` on the GPUs that the CPU plays: which device a rank takes, what is refused,
// checkpoints that change devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>

#include "io/interchange/numpy/npz.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/launch/machine/device_choice.h"

namespace {

using test_support::CommandResult;
using test_support::expect_success;
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
    const std::vector<std::string> argv = test_support::overridden(
        {test_support::engine_binary(), "train", "--model", "mlp", "--dataset", "synthetic",
         "--synthetic-shape", "4x4x1", "--synthetic-size", "40", "--batch-size", "10", "--threads",
         "1", "--steps", "2", "--eval-every", "0"},
        more);
    environment["ENGINE_EMULATED_GPUS"] = gpus;
    return test_support::run_command(argv, environment, 60'000);
  }
  static void expect_start(const CommandResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_CONTAINS(result.out, text);
  }
  static void expect_refused(const CommandResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 78) << result.out << result.err;
    EXPECT_VALUES(result.err, text);
  }
};

TEST_F(DevicePrograms, LaunchersCountTheDevicesThatCanBeUsed) {
  const std::map<std::string, std::string> three{{"ENGINE_EMULATED_GPUS", "3"},
                                                 {"ENGINE_EMULATED_COMPUTE", "8.0,5.2,9.0"},
                                                 {"CUDA_VISIBLE_DEVICES", "0,1,2"}};
  const std::string second =
      "GPU 1 (emulated GPU, compute capability 5.2) is not used: kernels need 6.0";
  const CommandResult launched = expect_success(test_support::engine(
      {"launch", "--nproc-per-node", "gpu", "--dry-run", "train", "--model", "mlp"}, three));
  for (const char* device : {",cuda:0,", ",cuda:2,"}) EXPECT_CONTAINS(launched.out, device);
  EXPECT_LACKS(launched.out, ",cuda:1,");
  EXPECT_CONTAINS(launched.err, second);
  // Another program may know what to do with it.
  const CommandResult other = test_support::engine(
      {"launch", "--nproc-per-node", "gpu", "--dry-run", "--", "/bin/true"}, three);
  EXPECT_CONTAINS(other.out, ",cuda:1,") << other.err;
  EXPECT_LACKS(other.err, "not used");

  const CommandResult spawned = expect_success(
      train("3", {"--spawn", "--dry-run"}, {{"ENGINE_EMULATED_COMPUTE", "8.0,5.2,9.0"}}));
  EXPECT_CONTAINS(spawned.err,
                  "--spawn starts 2 ranks, one for each GPU that can be used; " + second);

  const std::map<std::string, std::string> none{{"ENGINE_EMULATED_GPUS", "1"},
                                                {"ENGINE_EMULATED_COMPUTE", "5.2"}};
  const CommandResult refused =
      test_support::engine({"launch", "--nproc-per-node", "gpu", "--dry-run", "train"}, none);
  EXPECT_EQ(refused.exit_code, 78) << refused.out << refused.err;
  EXPECT_VALUES(refused.err, "--nproc-per-node gpu: GPU 0 5.2 6.0; cpu number");
}

// Of the row of rank 0 in --dry-run's table of memory, in bytes: rounded by at most 5 KiB.
std::int64_t planned_bytes(const std::string& out) {
  std::istringstream lines(out.substr(out.find("Memory (MiB)")));
  std::string line, cell, last;
  for (int i = 0; i < 3; ++i) std::getline(lines, line);
  for (std::istringstream cells(line); cells >> cell;) last = cell;
  return static_cast<std::int64_t>(std::stod(last) * (1 << 20));
}

// One error, which says all of it.
void expect_out_of_memory(const CommandResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 69) << result.out << result.err;
  for (const std::string& part : parts) EXPECT_VALUES(result.err, part);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
}

TEST_F(DevicePrograms, WhatDoesNotFitIsRefusedByThePlanBeforeItIsAllocated) {
  const auto with = [](std::int64_t bytes) {
    return train("1",
                 {"--device", "cuda", "--model", "convnet", "--synthetic-shape", "28x28x1",
                  "--synthetic-size", "256", "--batch-size", "256", "--eval-every", "1",
                  "--momentum", "0.9", "--data-on-device", "off", "--dry-run"},
                 {{"ENGINE_EMULATED_MEMORY", std::to_string(bytes)}});
  };
  const CommandResult roomy = expect_success(with(std::int64_t{1} << 30));
  EXPECT_CONTAINS(roomy.out, "evaluation");
  const std::int64_t planned = planned_bytes(roomy.out);
  ASSERT_GT(planned, 1 << 20) << roomy.out;
  // A few tables and counters are in no plan.
  expect_success(with(planned + (std::int64_t{1} << 18)));
  expect_out_of_memory(with(planned - (1 << 14)),
                       {"out of memory on cuda:0: batches of 256 samples need ", " activations",
                        " evaluation", " are free; at most --batch-size-per-device 255"});
  expect_out_of_memory(with(planned / 2), {"at most --batch-size-per-device "});
  expect_out_of_memory(with(1 << 16), {"one sample"});
}

TEST_F(DevicePrograms, MemoryThatIsRefusedAllTheSameNamesWhatItWasFor) {
  std::set<std::string> purposes;
  for (int call = 1; call <= 40; ++call) {
    const CommandResult result =
        train("1", {"--device", "cuda", "--momentum", "0.9", "--eval-every", "1"},
              {{"ENGINE_EMULATED_FAIL", "cudaMalloc:" + std::to_string(call)}});
    if (result.exit_code == 0) break;
    expect_out_of_memory(
        result, {"out of memory on cuda:0: ", " wanted for ", "4 GiB --batch-size-per-device 10"});
    const auto first = result.err.find(" for ") + 5;
    purposes.insert(result.err.substr(first, result.err.find(',') - first));
  }
  for (const char* purpose :
       {"parameters", "gradients", "the optimizer", "activations", "workspace", "batches",
        "the data set", "parameters of evaluation", "activations of evaluation"})
    EXPECT_TRUE(purposes.contains(purpose)) << purpose;
}

// The second of four steps has a sample whose outputs are not finite.
TEST_F(DevicePrograms, AnAverageIsWithoutStepsThatAreNotFinite) {
  const TemporaryDirectory folder;
  std::vector<float> x(24 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 23) / 23;
  std::fill_n(x.begin() + 8 * 64, 64, 3e38F);
  const std::vector<std::int64_t> y(24, 1);
  for (const char* file : {"train.npz", "test.npz"})
    io::save_npz(
        {array_fixture::array_of("x", {24, 1, 8, 8}, x), array_fixture::array_of("y", {24}, y)},
        folder / file);
  for (const char* device : {"cpu", "cuda"}) {
    const CommandResult result = expect_success(test_support::engine(
        test_support::argv("train --model convnet --dataset arrays --epochs 1 --batch-size 6 "
                           "--threads 1 --lr 1e-300 --average-last 1 --no-shuffle --eval-every 0 "
                           "--on-nonfinite skip --device",
                           device, "--data-dir", folder / ".", "--save-dir", folder / device),
        {{"ENGINE_EMULATED_GPUS", "1"}}));
    EXPECT_CONTAINS(result.err, " 1 of 4 steps,");
    expect_success(test_support::engine(
        {"export", folder / device, "--weights", "average", "-o", folder / device + ".npz"}));
  }
  const CommandResult same =
      test_support::engine({"verify", folder / "cpu.npz", folder / "cuda.npz", "--atol", "1e-4"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

// The statistics of the average are recomputed with memory of their own.
TEST_F(DevicePrograms, MemoryThatIsRefusedForAnAverageLosesNoStep) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, std::vector<std::string> more,
                       const std::map<std::string, std::string>& environment) {
    more.insert(more.begin(),
                {"--device", "cuda", "--model", "convnet", "--synthetic-shape", "8x8x1",
                 "--average-last", "1", "--save-every", "0", "--save-dir", folder / name});
    return train("1", more, environment);
  };
  expect_success(run("whole", {}, {}));
  bool failed = false;
  for (int call = 10; call <= 100 && !failed; ++call) {
    const std::string name = std::to_string(call);
    const CommandResult result =
        run(name, {}, {{"ENGINE_EMULATED_FAIL", "cudaMalloc:" + std::to_string(call)}});
    failed = result.err.find(" wanted for parameters of the average") != std::string::npos;
    if (!failed) continue;
    EXPECT_EQ(result.exit_code, 69) << result.err;
    EXPECT_TRUE(std::filesystem::exists(folder / name + "/step-00000002.ckpt")) << result.out;
    expect_success(run(name, {"--resume", "auto"}, {}));
    const CommandResult same = test_support::engine(
        {"verify", folder / name + "/step-00000002.ckpt", folder / "whole/step-00000002.ckpt"});
    EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
    expect_success(test_support::engine(
        {"eval", folder / name, "--weights", "average", "--threads", "1", "--device", "cpu"}));
  }
  EXPECT_TRUE(failed);
}

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
  expect_start(train("1", {"--dtype", "f64"}), ", f64");
  expect_start(train("1", {"--reduction-order", "canonical", "--reduction-shards", "2"}),
               "auto: local rank 0 of 1, 1 CUDA device visible");
  EXPECT_LACKS(train("1", {"--device", "cpu"}).out, "auto: no");
  EXPECT_LACKS(train("1", {"--device", "cuda"}).out, "auto: local rank");
}

TEST_F(DevicePrograms, WhatCannotBeIsRefusedWithBothNumbers) {
  expect_refused(train("2", {"--device", "cuda", "--spawn", "3"}), "3 ranks 2 CUDA");
  expect_refused(train("2", {"--device", "cuda:1", "--spawn", "2"}), "both CUDA GPU-");
  expect_refused(train("2", {"--spawn", "2", "--gpu-devices", "0", "1"}), "both CUDA GPU-");
  expect_refused(train("2", {"--gpu-devices", "0,2"}),
                 "there is no cuda:2, 2 CUDA devices are visible");
  expect_refused(train("0", {"--device", "cuda"}), "--device cuda: no CUDA device");
  expect_refused(train("0", {"--amp", "O1"}), "--amp O1 is for CUDA devices: no CUDA device");
  expect_refused(train("1", {"--amp", "O2", "--device", "cpu"}),
                 "--amp O2 requires --device cuda: CPUs compute off and bf16");
}

TEST_F(DevicePrograms, PrecisionIsSaid) {
  expect_start(train("1", {"--device", "cuda", "--amp", "bf16"}), ", bf16");
  expect_start(train("1", {"--device", "cuda", "--dtype", "f64"}), ", f64");
  expect_start(train("1", {"--device", "cuda", "--amp", "tf32"}), ", tf32 products");
  expect_start(train("1", {"--device", "cuda", "--amp", "O1"}),
               ", f16 products, loss scale dynamic");
  expect_start(train("1", {"--device", "cuda", "--amp", "O2", "--loss-scale", "512"}),
               ", f16, loss scale 512");
}

TEST_F(DevicePrograms, HistogramsAreOfGradientsAsWell) {
  const TemporaryDirectory folder;
  expect_success(train("1", {"--device", "cuda", "--amp", "bf16", "--histograms", "2",
                             "--tensorboard-dir", folder / "events"}));
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(folder.path() / "events"))
    events += test_support::read_text(file.path().string());
  for (const char* kind : {"parameters", "gradients"})
    EXPECT_NE(events.find(std::string(kind) + "/layers.0.bias"), std::string::npos) << kind;
}

TEST_F(DevicePrograms, CheckpointsChangeDevices) {
  const TemporaryDirectory folder;
  const CommandResult saved =
      expect_success(train("2", {"--device", "cuda:1", "--save-dir", folder / "a"}));
  const std::string checkpoint = folder / "a/step-00000002.ckpt";
  const auto resume = [&](const std::string& gpus, const std::string& device,
                          const std::string& map) {
    return train(
        gpus, {"--device", device, "--resume", checkpoint, "--map-location", map, "--steps", "3"});
  };
  const std::string resumed = "resumed " + checkpoint + " at step 2";
  expect_start(resume("1", "cuda", "auto"), resumed);  // cuda:1 is not there
  expect_start(resume("0", "cpu", "auto"), resumed);
  expect_start(resume("2", "cuda:1", "cuda:1=cuda:1"), resumed);
  expect_start(resume("2", "cuda:1", "cuda:1=cpu"), resumed);  // by way of host memory
  expect_refused(resume("2", "cuda:1", "cuda:1=cuda:0"), "cuda:1 no other");
  expect_refused(resume("1", "cpu", "cuda:1=cuda:0"), "cuda:1 cuda:0");
  expect_refused(resume("1", "cuda", "cuda:0=cuda:0"), "map-location says nothing about cuda:1");
}

}  // namespace
