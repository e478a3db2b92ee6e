// The memory that `--dry-run` plans for an emulated GPU is enough to train with each option that
// allocates there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tools/launch/machine/device_choice.h"

namespace {

using test_support::argv;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

// A copy of its parameters is larger than what no plan counts: tables and counters.
constexpr std::int64_t kUncounted = std::int64_t{1} << 18;
constexpr const char* kLayers = R"(sample_shape = [6, 6, 3]
classes = 10
layer = [
  {kind = "conv2d", name = "conv", out_channels = 8, padding = 1, bias = false},
  {kind = "batch_norm2d", name = "bn"},
  {kind = "relu"},
  {kind = "flatten"},
  {kind = "dense", name = "wide", out = 320},
  {kind = "relu"},
  {kind = "dense", name = "hidden", out = 320},
  {kind = "relu"},
  {kind = "dense", name = "fc", out = "classes"}]
)";

// The largest planned memory of a rank, with what is in use, from the table of --dry-run.
std::int64_t largest_plan(const std::string& out) {
  std::istringstream lines(out.substr(out.find("Memory (MiB)")));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const bool in_use = line.find("in use") != std::string::npos;
  const std::vector<std::string> names = test_support::split_words(line);
  const auto total = static_cast<std::size_t>(std::ranges::find(names, "total") - names.begin()) -
                     (in_use ? 1 : 0);  // the name of two words
  double most = 0;
  while (std::getline(lines, line) && !line.empty()) {
    const std::vector<std::string> cells = test_support::split_words(line);
    if (cells.size() < 5 || cells[2].find("cuda") == std::string::npos) break;
    most = std::max(most, std::stod(cells.at(total)) + (in_use ? std::stod(cells[3]) : 0));
  }
  return static_cast<std::int64_t>(most * (1 << 20));
}

class MemoryPlanOfDevices : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto gpus = tools::gpu_lines();
    if (gpus.empty() || gpus.front().find("emulated") == std::string::npos)
      GTEST_SKIP() << "needs GPUs whose memory can be set";
    test_support::write_text(folder_ / "model.toml", kLayers);
  }
  CommandResult train(std::int64_t memory, const std::vector<std::string>& more) const {
    std::vector<std::string> words = argv(
        "train --dataset synthetic --synthetic-shape 6x6x3 --synthetic-size 48 --batch-size "
        "16 --threads 1 --epochs 1 --eval-every 1e --save-every 2s --device cuda --model",
        folder_ / "model.toml", "--save-dir", folder_ / "run", more);
    const std::vector<std::string> row = test_support::split_words(GetParam());
    words.insert(words.end(), row.begin(), row.end());
    return test_support::engine(
        words, {{"ENGINE_EMULATED_GPUS", "3"}, {"ENGINE_EMULATED_MEMORY", std::to_string(memory)}});
  }
  const TemporaryDirectory folder_;
};

TEST_P(MemoryPlanOfDevices, IsEnough) {
  const CommandResult plan = expect_success(train(std::int64_t{1} << 30, {"--dry-run"}));
  const std::int64_t planned = largest_plan(plan.out);
  ASSERT_GT(planned, std::int64_t{1} << 20) << plan.out;
  const CommandResult trained = train(planned + kUncounted, {});
  EXPECT_EQ(trained.exit_code, 0) << trained.out << trained.err << plan.out;
}

INSTANTIATE_TEST_SUITE_P(
    OneRank, MemoryPlanOfDevices,
    testing::Values("", "--momentum 0.9", "--optimizer adamw", "--optimizer lion",
                    "--optimizer muon --muon-steps 1", "--optimizer muon --muon-steps 1 --amp bf16",
                    "--ema 0.9", "--optimizer muon --muon-steps 1 --ema 0.9", "--average-last 1",
                    "--average-last 1 --grad-accum 2", "--average-last 1 --amp O2",
                    "--average-last 1 --on-nonfinite skip", "--clip-grad 0.5 --grad-accum 3",
                    "--on-nonfinite skip --save-rank-models", "--amp O1", "--amp O2",
                    "--amp bf16 --optimizer adamw", "--dtype f64", "--freeze wide.weight",
                    "--cuda-graph off", "--data-on-device off",
                    "--reduction-order canonical --reduction-shards 4",
                    "--reduction-order canonical --reduction-shards 4 --sync-bn", "--save-async",
                    "--augment crop,flip --crop-padding 1"));

INSTANTIATE_TEST_SUITE_P(
    SeveralRanks, MemoryPlanOfDevices,
    testing::Values(
        "--spawn 2", "--spawn 2 --verify-every 1", "--spawn 2 --sync-bn --average-last 1",
        "--spawn 2 --buffers average", "--spawn 2 --shard-optimizer --optimizer adamw",
        "--spawn 2 --shard-optimizer --optimizer muon --muon-steps 1", "--spawn 2 --compress bf16",
        "--spawn 2 --compress int8", "--spawn 3 --compress int4 --grad-accum 2",
        "--spawn 2 --compress topk", "--spawn 2 --compress powersgd",
        "--spawn 2 --compress powersgd --elastic",
        "--spawn 2 --compress sparse --sparse-momentum 0.9 --momentum 0",
        "--spawn 2 --sync params --sync-every 2 --average-last 1",
        "--spawn 2 --sync params --sync-every 2 --compress int8",
        "--spawn 2 --sync diloco --sync-every 2",
        "--spawn 2 --sync diloco --sync-every 2 --elastic",
        "--spawn 2 --sync diloco --sync-every 2 --compress int8 --verify-every 1",
        "--spawn 2 --sync streaming --sync-every 2 --sync-overlap 1",
        "--spawn 2 --sync gossip --sync-every 2 --outer-momentum 0.5",
        "--spawn 2 --sync slowmo --average-state all --optimizer adamw --sync-every 2",
        "--spawn 2 --sync post-local --sync-warmup 1", "--spawn 2 --sync none",
        "--spawn 2 --stale 1 --sync params", "--spawn 2 --shares 1:2", "--spawn 2 --elastic",
        "--spawn 2 --backend socket --sync-bn", "--spawn 2 --backend socket --compress int8",
        "--spawn 2 --backend socket --sync streaming --sync-every 2 --sync-overlap 1 --compress "
        "sparse",
        "--spawn 2 --reduction-order canonical --sync-bn",
        "--spawn 3 --reduction-order canonical --optimizer muon --muon-steps 1 --shard-optimizer"));

}  // namespace
