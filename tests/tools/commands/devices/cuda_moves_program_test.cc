// Runs of the program that begin on the CPU or on CUDA devices and continue on the other, and
// trained models that are evaluated on both: layers of branches, and a regression.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/cuda.h"
#include "tests/support/command_words.h"
#include "tests/support/test_support.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

class CudaMoves : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

// Two ranks may share one GPU; the emulated runtime shows two.
const std::map<std::string, std::string> kTwoDevices{{"ENGINE_ALLOW_SHARED_GPU", "1"},
                                                     {"ENGINE_EMULATED_GPUS", "2"}};

// A number in a line of `engine eval --format json`; NaN if there is none.
double number_of(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  return at == std::string::npos ? NAN : std::stod(json.substr(at + key.size() + 3));
}

// Trains from the start on `first`, then on from there on `second`.
std::string moved(const std::string& folder, const std::string& first, const std::string& second,
                  const std::vector<std::string>& options) {
  std::vector<std::string> words = test_support::overridden(
      argv("train --batch-size 12 --momentum 0.9 --epochs 1 --spawn 2 --backend shm --save-dir",
           folder, "--device", first),
      options);
  expect_success(engine(words, kTwoDevices));
  expect_success(
      engine(argv("train --resume", folder, "--epochs 2 --device", second), kTwoDevices));
  return folder;
}

TEST_F(CudaMoves, AModelOfBranchesMovesBetweenCpuAndDevice) {
  const TemporaryDirectory folder;
  test_support::write_text(folder / "branches.toml",
                           R"(layer = [
  {kind = "conv2d", name = "conv", out_channels = 4, padding = 1},
  {kind = "activation", function = "silu", name = "image"},
  {kind = "global_average_pool"},
  {kind = "dense", name = "excite", out = 4},
  {kind = "activation", function = "sigmoid", name = "scales"},
  {kind = "multiply", inputs = ["image", "scales"], name = "scaled"},
  {kind = "concat", inputs = ["scaled", "image"]},
  {kind = "flatten"},
  {kind = "dense", name = "fc", out = "classes"}]
)");
  const std::vector<std::string> options =
      argv("--dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 --model",
           folder / "branches.toml");
  const std::string cpu = moved(folder / "cpu", "cpu", "cpu", options);
  for (const auto& [first, second] :
       {std::pair{"cuda", "cuda"}, {"cuda", "cpu"}, {"cpu", "cuda"}}) {
    const std::string name = std::string(first) + second;
    expect_success(
        call("verify --rtol 1e-4 --atol 1e-5", cpu, moved(folder / name, first, second, options)));
  }
  const auto eval = [&](const char* device) {
    return expect_success(engine(argv("eval", cpu, "--split train --format json --device", device),
                                 kTwoDevices))
        .out;
  };
  const std::string on_cpu = eval("cpu"), on_device = eval("cuda");
  EXPECT_EQ(number_of(on_device, "correct"), number_of(on_cpu, "correct"));
  EXPECT_NEAR(number_of(on_device, "loss"), number_of(on_cpu, "loss"), 1e-5);
}

// Errors and predictions in the column's unit, and a run that changes devices.
TEST_F(CudaMoves, ARegressionMovesBetweenCpuAndDevice) {
  const TemporaryDirectory folder;
  std::string table = "a,b,price\n";
  for (int i = 0; i < 60; ++i)
    table += std::to_string(i * 37 % 41) + "," + std::to_string(i * i % 23) + "," +
             std::to_string(900 + 7 * (i * 37 % 41) - 11 * (i * i % 23)) + "\n";
  test_support::write_text(folder / "homes.csv", table);
  const std::vector<std::string> options = argv(
      "--model mlp --dataset csv --task regression --lr 0.01 --annotations", folder / "homes.csv");
  const std::string cpu = moved(folder / "cpu", "cpu", "cpu", options);
  for (const auto& [first, second] :
       {std::pair{"cuda", "cuda"}, {"cuda", "cpu"}, {"cpu", "cuda"}}) {
    const std::string name = std::string(first) + second;
    expect_success(
        call("verify --rtol 1e-3 --atol 1e-5", cpu, moved(folder / name, first, second, options)));
  }
  const auto eval = [&](const std::vector<std::string>& more) {
    const std::vector<std::string> words =
        test_support::overridden(argv("eval", cpu, "--split train --format json"), more);
    return expect_success(engine(words, kTwoDevices)).out;
  };
  const std::string on_cpu = eval(argv("--device cpu")), on_device = eval(argv("--device cuda"));
  EXPECT_EQ(eval(argv("--device cuda --spawn 2 --backend shm")), on_device);
  for (const char* key : {"loss", "mse", "mae", "r2"}) {
    const double expected = number_of(on_cpu, key);
    EXPECT_NEAR(number_of(on_device, key), expected, 1e-5 * std::abs(expected)) << key;
  }
  const auto predicted = [&](const char* device) {
    std::istringstream lines(
        expect_success(
            engine(argv("predict", cpu, folder / "homes.csv", "--device", device), kTwoDevices))
            .out);
    std::vector<double> numbers;
    std::string line;
    std::getline(lines, line);  // the header
    while (std::getline(lines, line))
      numbers.push_back(std::stod(line.substr(line.rfind(',') + 1)));
    return numbers;
  };
  const std::vector<double> expected = predicted("cpu"), found = predicted("cuda");
  ASSERT_EQ(expected.size(), 60u);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 0.01) << i;
}

}  // namespace
