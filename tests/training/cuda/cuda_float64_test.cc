// Trainings in float64 on CUDA devices against the same on the CPU: models, optimizers, ranks,
// averaging, and checkpoints that move between devices.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/test_support.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::distance;
using session_runner::loss_distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

const Options kCuda = "device=cuda", kCpu = "device=cpu";
const Options kMlp = "dtype=f64 steps=5 lr=0.05 momentum=0.9 weight-decay=0.001 eval-every=1";
const Options kConvnet =
    "dtype=f64 model=convnet synthetic-shape=12x12x1 batch-size=6 steps=3 lr=0.05 eval-every=1";

class CudaFloat64 : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/true, 2); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

// Ten digits and more of losses, evaluation, parameters and running statistics.
void expect_near(const RankResult& expected, const RankResult& found, double most = 1e-10) {
  EXPECT_LT(loss_distance(expected, found), most);
  EXPECT_LT(distance(expected, found), most);
  const bool has_statistics = std::ranges::any_of(expected.state, [](const io::NamedArray& each) {
    return each.section == io::Section::kBuffer && each.type == io::DType::kF64;
  });
  if (has_statistics) EXPECT_LT(distance(expected, found, io::Section::kBuffer), most);
  EXPECT_NEAR(found.last_eval.loss, expected.last_eval.loss, most);
}

void expect_as_on_the_cpu(const Options& options, double most = 1e-10) {
  expect_near(train(1, with(options, kCpu))[0], train(1, with(options, kCuda))[0], most);
}

TEST_F(CudaFloat64, ImageModelsTrainAsOnTheCpu) {
  for (const Options& options :
       {kMlp, with(kMlp, "optimizer=adamw lr=0.002 momentum= clip-grad=0.5 ema=0.9"),
        with(kMlp, "optimizer=lion lr=0.001 momentum= synthetic-size=30 grad-accum=3"),
        with(kConvnet, "momentum=0.9 nesterov=true"),
        with(kConvnet,
             "model=resnet20-cifar synthetic-shape=8x8x3 batch-size=3 steps=2 synthetic-size=16 "
             "augment=crop,flip")}) {
    SCOPED_TRACE(options.at("steps") + " steps");
    expect_as_on_the_cpu(options);
  }
}

TEST_F(CudaFloat64, TextModelsTrainAsOnTheCpu) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  test_support::write_text(folder / "input.txt", text);
  const Options options = "dtype=f64 dataset=text data-dir=" + folder.path().string() +
                          " context=8 batch-size=4 steps=3 lr=0.1";
  expect_as_on_the_cpu(with(options, "model=gpt-nano dropout=0.1"));
  expect_as_on_the_cpu(
      with(options, "model=gpt-nano optimizer=muon lr=0.02 clip-grad=0.5 steps=2"));
  expect_as_on_the_cpu(
      with(options, "model=" + test_support::source_directory() + "/models/examples/llama.toml"));
}

TEST_F(CudaFloat64, CapturedStepsHaveTheSameBits) {
  for (const Options& options : {with(kMlp, "clip-grad=0.5"), kConvnet}) {
    const RankResult captured = train(1, with(options, kCuda))[0],
                     plain = train(1, with(options, kCuda, "cuda-graph=off"))[0];
    EXPECT_TRUE(same_bits(plain, captured, io::Section::kParameter));
    EXPECT_EQ(plain.losses, captured.losses);
  }
}

// Staged through host memory, over NCCL, with shards of the optimizer and statistics of all ranks.
TEST_F(CudaFloat64, RanksTrainAsOnTheCpu) {
  for (const Options& options :
       {with(kMlp, "batch-size=13 clip-grad=0.5"), with(kConvnet, "sync-bn=true"),
        with(kMlp, "batch-size=13 shard-optimizer=true"),
        with(kMlp, "batch-size=13 sync=params sync-every=2 average-state=all")}) {
    const auto cpu = train(2, with(options, kCpu)), staged = train(2, with(options, kCuda)),
               nccl = train(2, with(options, cuda_ranks::on_devices(2, /*nccl=*/true)));
    for (const auto* ranks : {&staged, &nccl}) {
      expect_near(cpu[0], (*ranks)[0]);
      EXPECT_TRUE(same_bits((*ranks)[0], (*ranks)[1], io::Section::kParameter));
    }
  }
}

TEST_F(CudaFloat64, CanonicalOrderHasTheSameBitsForAnyRanks) {
  for (const Options& more : {kMlp, with(kConvnet, "sync-bn=true")}) {
    const Options options = with(more, "reduction-order=canonical batch-size=14 clip-grad=1");
    const RankResult one = train(1, with(options, kCuda))[0];
    expect_near(train(1, with(options, kCpu))[0], one);
    for (const bool nccl : {false, true}) {
      const RankResult two = train(2, with(options, cuda_ranks::on_devices(2, nccl)))[0];
      EXPECT_TRUE(same_bits(one, two, io::Section::kParameter)) << nccl;
      EXPECT_TRUE(same_bits(one, two, io::Section::kBuffer)) << nccl;
      EXPECT_EQ(one.losses, two.losses) << nccl;
    }
  }
}

// Both layers of a pair add to the same gradients, and both update the same running statistics.
TEST_F(CudaFloat64, TiedLayersTrainAsOnTheCpu) {
  const TemporaryDirectory folder;
  test_support::write_text(folder / "tied.toml", R"(layer = [
  {kind = "conv2d", name = "conv1", out_channels = 4, padding = 1},
  {kind = "batch_norm2d", name = "bn1"},
  {kind = "relu"},
  {kind = "conv2d", name = "conv2", out_channels = 4, padding = 1, bias = true},
  {kind = "batch_norm2d", name = "bn2"},
  {kind = "relu"},
  {kind = "conv2d", name = "conv3", out_channels = 4, padding = 1, bias = true, tied = "conv2"},
  {kind = "batch_norm2d", name = "bn3", tied = "bn2"},
  {kind = "relu"},
  {kind = "batch_norm2d", name = "bn4", tied = "bn2"},
  {kind = "conv2d", name = "depthwise", out_channels = 4, groups = 4, padding = 1},
  {kind = "conv2d", name = "last", out_channels = 4, groups = 4, padding = 1, tied = "depthwise"},
  {kind = "flatten"},
  {kind = "dense", name = "dense1", out = 12, bias = true},
  {kind = "relu"},
  {kind = "dense", name = "dense2", out = 12, bias = true},
  {kind = "dense", name = "dense3", out = 12, bias = true, tied = "dense2"},
  {kind = "dense", name = "fc", out = "classes"}]
)");
  const Options base = with("dtype=f64 synthetic-shape=4x4x1 batch-size=12 steps=8 lr=0.05",
                            "momentum=0.9 eval-every=4 model=" + (folder / "tied.toml"));
  for (const char* more : {"clip-grad=0.5", "sync-bn=true", "reduction-order=canonical",
                           "grad-accum=2 shard-optimizer=true"}) {
    SCOPED_TRACE(more);
    const Options options = with(base, more);
    expect_as_on_the_cpu(options);
    const auto cpu = train(2, with(options, kCpu)), staged = train(2, with(options, kCuda)),
               nccl = train(2, with(options, cuda_ranks::on_devices(2, /*nccl=*/true)));
    for (const auto* ranks : {&staged, &nccl}) {
      expect_near(cpu[0], (*ranks)[0]);
      EXPECT_TRUE(same_bits((*ranks)[0], (*ranks)[1], io::Section::kParameter));
    }
    EXPECT_EQ(nccl[0].capture, "captured from step 3 on");
  }
}

// Weights that f32 does not hold, of classes and of the positives of labels.
TEST_F(CudaFloat64, WeightsOfClassesAreThoseOfTheCpu) {
  const TemporaryDirectory folder;
  std::string table = "a,b,u,v,k\n";
  for (int i = 0; i < 45; ++i)
    table += std::to_string(i * 37 % 41) + "," + std::to_string(i * i % 23) + "," +
             std::to_string(i % 2) + "," + (i % 4 == 1 ? "" : std::to_string(i / 2 % 2)) + "," +
             std::to_string(i * i % 3) + "\n";
  test_support::write_text(folder / "rows.csv", table);
  const Options base = with("dtype=f64 dataset=csv model=mlp batch-size=7 steps=6 lr=0.05",
                            "columns=a,b eval-every=3 annotations=" + (folder / "rows.csv"));
  for (const char* more : {"task=multi-label label-column=u,v class-weights=1.3,0.7",
                           "label-column=k class-weights=0.3,2.1"}) {
    SCOPED_TRACE(more);
    const Options options = with(base, more);
    expect_as_on_the_cpu(options, 1e-12);
    const auto one = train(1, with(options, kCpu)), two = train(2, with(options, kCpu));
    expect_near(one[0], two[0], 1e-12);
    expect_near(one[0], train(2, with(options, kCuda))[0], 1e-12);
  }
}

TEST_F(CudaFloat64, CheckpointsMoveBetweenDevices) {
  const TemporaryDirectory folder;
  for (const auto& [first, second] : {std::pair(kCuda, kCpu), std::pair(kCpu, kCuda)}) {
    const Options options = with(kConvnet, "momentum=0.9 steps=4");
    const Options saved = with(options, "save-dir=" + (folder / first.at("device")));
    train(1, with(saved, first, "steps=2"));
    const RankResult resumed = train(1, with(saved, second, "resume=auto"))[0],
                     whole = train(1, with(options, kCpu))[0];
    EXPECT_LT(distance(whole, resumed), 1e-10);
    EXPECT_NEAR(resumed.last_eval.loss, whole.last_eval.loss, 1e-10);
  }
}

}  // namespace
