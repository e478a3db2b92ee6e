// Trainings with the smallest --memory that they accept against the same without a limit: all bits
// are equal, also of running statistics, on CPUs and on a CUDA device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::difference;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::train;
using session_runner::with;

constexpr const char* kDropout = R"(layer = [
  {kind = "flatten"},
  {kind = "dense", name = "fc1", out = 512},
  {kind = "relu"},
  {kind = "dropout", rate = 0.3},
  {kind = "dense", name = "fc2", out = 512},
  {kind = "relu"},
  {kind = "dropout", rate = 0.3},
  {kind = "dense", name = "fc3", out = 512},
  {kind = "relu"},
  {kind = "dropout", rate = 0.3},
  {kind = "dense", name = "fc4", out = "classes"}]
)";

// The smallest --memory, from the message that rejects a smaller one.
std::string smallest(int world, const Options& options) {
  const std::string text = test_support::error_or<io::ConfigError>(
      [&] { train(world, with(options, "memory=1K")); }, "");
  const std::string before = "samples need at least ";
  EXPECT_CONTAINS(text, before);
  const std::size_t begin = text.find(before) + before.size(), end = text.find(' ', begin);
  return text.substr(begin, end - begin) + text.at(end + 1);  // "618 KiB": 618K
}

// Trains without and with the limit; returns the latter's memory.
tools::MemoryFacts expect_same(int world, const Options& options) {
  const std::vector<RankResult> whole = train(world, options),
                                limited = train(
                                    world,
                                    with(options, Options("memory=" + smallest(world, options))));
  EXPECT_FALSE(whole[0].memory);
  EXPECT_EQ(whole[0].losses, limited[0].losses);
  for (std::size_t r = 0; r < whole.size(); ++r)
    EXPECT_EQ(difference(whole[r].whole, limited[r].whole), "") << "rank " << r;
  return limited[0].memory.value_or(tools::MemoryFacts{});
}

class MemoryLimit : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("cpu")) return;
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    setenv("ENGINE_ALLOW_SHARED_GPU", "1", 1);
  }
  void expect_recomputation(int world, const std::string& options) const {
    const tools::MemoryFacts memory =
        expect_same(world, with(Options(options), Options(std::string("device=") + GetParam())));
    EXPECT_GT(memory.recomputed_layers, 0);
    EXPECT_GT(memory.recomputed, 0u);
    EXPECT_LE(memory.total, memory.limit);
    EXPECT_GT(memory.added_flops, 0);
    EXPECT_LT(memory.added_flops, 1. / 3);
  }
  // The emulated device computes slowly.
  bool is_slow() const { return GetParam() != std::string("cpu"); }
};

TEST_P(MemoryLimit, ANetworkWithDropoutHasTheSameBits) {
  const test_support::TemporaryDirectory folder;
  const std::string model = folder / "dropout.toml";
  test_support::write_text(model, kDropout);
  for (const int world : {1, 2})
    expect_recomputation(world, "steps=4 lr=0.05 momentum=0.9 synthetic-size=512 batch-size=" +
                                    std::to_string(512 * world) + " model=" + model);
}

TEST_P(MemoryLimit, BatchNormWithResidualsHasTheSameBitsAndStatistics) {
  expect_recomputation(1, std::string("model=resnet20-cifar synthetic-shape=16x16x3 steps=") +
                              (is_slow() ? "1" : "3") + " batch-size=" + (is_slow() ? "8" : "32"));
}

TEST_P(MemoryLimit, AConvnetInMicroBatchesOnTwoRanksHasTheSameBits) {
  expect_recomputation(2, std::string("model=convnet synthetic-shape=28x28x1 grad-accum=2 steps=") +
                              (is_slow() ? "1" : "3") + " synthetic-size=256 batch-size=256");
}

TEST_P(MemoryLimit, StatisticsOverAllReplicasAreExchangedOnce) {
  expect_recomputation(2, std::string("model=resnet20-cifar synthetic-shape=16x16x3 sync-bn=true "
                                      "steps=") +
                              (is_slow() ? "1" : "3") + " batch-size=" + (is_slow() ? "16" : "32"));
}

TEST_P(MemoryLimit, AModelOfTextWithDropoutHasTheSameBits) {
  for (const int world : {1, 2})
    expect_recomputation(world,
                         "model=gpt-nano dropout=0.1 synthetic-shape=32 "
                         "synthetic-classes=65 optimizer=adamw steps=" +
                             std::string(is_slow() ? "1" : "3") +
                             " batch-size=" + std::to_string((is_slow() ? 4 : 16) * world));
}

INSTANTIATE_TEST_SUITE_P(Devices, MemoryLimit, testing::Values("cpu", "cuda"),
                         [](const auto& device) { return std::string(device.param); });

TEST(MemoryLimitOfARun, MayChangeWhenItIsResumed) {
  const Options options =
      "model=gpt-nano synthetic-shape=32 synthetic-classes=65 batch-size=16 steps=4";
  const test_support::TemporaryDirectory folder, other;
  const auto kept_in = [&](const test_support::TemporaryDirectory& place) {
    return with(options, Options("save-dir=" + place.path().string()));
  };
  const std::string limit = smallest(1, kept_in(other));  // with a copy for checkpoints
  const Options kept = kept_in(folder);
  train(1, with(kept, "steps=2"));
  const std::vector<RankResult> resumed =
      train(1, with(kept, Options("resume=auto memory=" + limit)));
  EXPECT_GT(resumed[0].memory.value().recomputed_layers, 0);
  EXPECT_EQ(resumed[0].end.global_step, 4);
  EXPECT_EQ(difference(train(1, options)[0].whole, resumed[0].whole), "");
}

TEST(MemoryLimitOfARun, AutoTakesWhatIsFree) {
  const std::vector<RankResult> ranks = train(2, "steps=1 memory=auto");
  EXPECT_GT(ranks[0].memory.value().limit, ranks[0].memory.value().total);
  EXPECT_EQ(ranks[0].memory.value().recomputed_layers, 0);
}

TEST_P(MemoryLimit, AboveWhatIsFreeIsWhatIsFree) {
  const std::vector<RankResult> ranks =
      train(1, with("steps=1 memory=900T", Options(std::string("device=") + GetParam())));
  const tools::MemoryFacts memory = ranks[0].memory.value();
  EXPECT_EQ(memory.requested, std::uint64_t{900} << 40);
  EXPECT_LT(memory.limit, std::uint64_t{1} << 44);
  EXPECT_GT(memory.limit, memory.total);
}

TEST(MemoryLimitOfARun, ASizeNeedsAUnit) {
  for (const char* size : {"8", "G", "8X", "-1G", "1e30G", "0.1K"})
    EXPECT_VALUES(
        test_support::error_or<io::ConfigError>(
            [&] { session_runner::make_config(Options("memory=" + std::string(size))); }, ""),
        std::string("'") + size + "' auto, none, unit");
  EXPECT_EQ(session_runner::make_config("memory=1.5G").compute.memory.bytes, 3u << 29);
  EXPECT_EQ(session_runner::make_config("memory=none").compute.memory.bytes, 0u);
}

}  // namespace
