// Every model of the catalog takes its first steps on a CUDA device as on the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/cuda.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::distance;
using session_runner::Options;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

void write_some_text(const std::string& path) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  test_support::write_text(path, text);
}

class CudaModels : public ::testing::TestWithParam<Options> {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

TEST_P(CudaModels, TakeTheStepsOfTheCpu) {
  const test_support::TemporaryDirectory folder;
  Options options = with("steps=1 batch-size=4 lr=0.1", GetParam());
  if (options.at("model").find("gpt") != std::string::npos) {
    write_some_text(folder / "input.txt");
    options = with(options, "dataset=text data-dir=" + folder.path().string() + " context=8");
  }
  const auto cuda = train(1, with(options, "device=cuda")),
             cpu = train(1, with(options, "device=cpu")),
             exact = train(1, with(options, "device=cpu dtype=f64"));
  // No farther from float64 than a few times what float32 on the CPU is: deep networks make much of
  // rounding.
  const double loss = exact[0].losses.at(0), cpu_error = std::abs(cpu[0].losses.at(0) - loss);
  EXPECT_NEAR(cuda[0].losses.at(0), loss, 5 * cpu_error + 1e-5 * std::abs(loss));
  EXPECT_LE(distance(exact[0], cuda[0]), 5 * distance(exact[0], cpu[0]) + 5e-4);
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaModels,
    ::testing::Values(Options("model=convnet synthetic-shape=28x28x1"),
                      Options("model=resnet18-cifar synthetic-shape=16x16x3"),
                      Options("model=resnet50-cifar synthetic-shape=16x16x3"),
                      Options("model=resnet18 synthetic-shape=64x64x3"),
                      Options("model=resnet50 synthetic-shape=64x64x3"),
                      Options("model=pyramidnet110 synthetic-shape=8x8x3 batch-size=2"),
                      Options("model=gpt-nano"), Options("model=gpt-mini batch-size=1")),
    [](const auto& parameter) {
      std::string name = parameter.param.at("model");
      std::erase(name, '-');
      return name;
    });

// The example of docs/toml.md: grouped heads, rotary positions and RMS norms, on one device and
// two.
TEST(CudaModelsFromFiles, LlamaTrainsAsOnTheCpu) {
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  setenv("ENGINE_ALLOW_SHARED_GPU", "1", 1);  // two ranks on whatever is there
  const test_support::TemporaryDirectory folder;
  write_some_text(folder / "input.txt");
  const Options options =
      "model=" + test_support::source_directory() +
      "/models/examples/llama.toml dataset=text data-dir=" + folder.path().string() +
      " context=12 batch-size=6 steps=4 lr=0.1 weight-decay=0.1 "
      "no-decay=norms device=cuda";
  const auto cuda = train(1, options), two = train(2, options),
             exact = train(1, with(options, "device=cpu dtype=f64"));
  EXPECT_LT(exact[0].losses.back(), exact[0].losses.front());
  EXPECT_LT(distance(exact[0], cuda[0]), 1e-4);
  EXPECT_LT(distance(exact[0], two[0]), 1e-4);
  EXPECT_TRUE(same_bits(two[0], two[1], io::Section::kParameter));
  const auto straight = train(1, with(options, "cuda-graph=off"));
  EXPECT_TRUE(same_bits(straight[0], cuda[0], io::Section::kParameter));
  const auto rounded = train(1, with(options, "amp=bf16"));
  ASSERT_EQ(rounded[0].losses.size(), exact[0].losses.size());
  for (std::size_t i = 0; i < exact[0].losses.size(); ++i)
    EXPECT_NEAR(rounded[0].losses[i], exact[0].losses[i], 3e-2);
}

}  // namespace
