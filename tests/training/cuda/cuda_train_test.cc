// Whole trainings on a CUDA device against the same on the CPU: losses, resumption, replicas,
// precision, captured steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/optim/moving_average.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/session_runner.h"

namespace {

using session_runner::AfterStep;
using session_runner::distance;
using session_runner::loss_distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

class CudaTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    setenv("ENGINE_ALLOW_SHARED_GPU", "1",
           1);  // as many ranks as a test wants on whatever is there
  }
};

const Options kMlp =
    with(cuda_ranks::small_mlp(), "steps=6 lr=0.05 momentum=0.9 weight-decay=0.001 device=cuda");
const Options kConvnet =
    "model=convnet synthetic-shape=28x28x1 batch-size=5 steps=3 lr=0.05 "
    "device=cuda";

Options on_cpu(const Options& options) {
  Options result = options;
  for (const char* name : {"amp", "loss-scale", "cuda-graph", "gpu-devices"}) result.erase(name);
  result["device"] = "cpu";
  return result;
}

// Every activation, products of one shape and of channels, and a concatenation.
constexpr const char* kBranches = R"(layer = [
  {kind = "conv2d", name = "conv1", out_channels = 5, padding = 1},
  {kind = "activation", function = "hard_swish", name = "start"},
  {kind = "conv2d", name = "conv2", out_channels = 5, padding = 1},
  {kind = "activation", function = "leaky_relu"},
  {kind = "activation", function = "relu6", name = "second"},
  {kind = "concat", inputs = ["start", "second"]},
  {kind = "activation", function = "silu", name = "image"},
  {kind = "global_average_pool"},
  {kind = "dense", name = "excite", out = 10},
  {kind = "activation", function = "hard_sigmoid"},
  {kind = "dense", name = "scale", out = 10},
  {kind = "activation", function = "sigmoid", name = "scales"},
  {kind = "multiply", inputs = ["image", "scales"], name = "scaled"},
  {kind = "multiply", inputs = ["scaled", "image"]},
  {kind = "global_average_pool"},
  {kind = "dense", name = "hidden", out = 7},
  {kind = "activation", function = "tanh"},
  {kind = "dense", name = "fc", out = "classes"}]
)";

bool equal(const RankResult& a, const RankResult& b) {
  return same_bits(a, b, io::Section::kParameter) && same_bits(a, b, io::Section::kBuffer);
}

TEST_F(CudaTrain, AgreesWithTheCpu) {
  for (const Options& options :
       {kMlp, kConvnet, with(kMlp, "optimizer=adamw lr=0.002 momentum= clip-grad=0.5"),
        with(kMlp, "synthetic-size=30 grad-accum=3")}) {
    const auto cuda = train(1, options), cpu = train(1, on_cpu(options));
    EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-5);
    // AdamW divides by the gradient's own size: where that is next to nothing, rounding decides.
    EXPECT_LT(distance(cpu[0], cuda[0]), options.contains("optimizer") ? 5e-4 : 1e-5);
  }
}

// A wide and a tall hidden matrix, and what AdamW updates; captured steps, short copies of the
// weights, replicas, and checkpoints that move between devices.
TEST_F(CudaTrain, MuonAgreesWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "net.toml", test_support::layers_toml(R"(
conv2d first out_channels=6
conv2d wide out_channels=8
global_average_pool
dense tall out=20
relu
dense last out=classes
)"));
  const Options options = "model=" + (folder / "net.toml") +
                          " synthetic-shape=7x6x3 batch-size=12 steps=6 optimizer=muon lr=0.02 "
                          "clip-grad=0.5 device=cuda";
  const auto cuda = train(1, options), cpu = train(1, on_cpu(options)),
             exact = train(1, with(on_cpu(options), "dtype=f64")), two = train(2, options);
  // Newton-Schulz multiplies what rounding leaves of small singular values by hundreds.
  const double most = 5 * distance(exact[0], cpu[0]) + 5e-4;
  EXPECT_LT(most, 0.02);
  EXPECT_LT(loss_distance(exact[0], cuda[0]), 1e-3);
  EXPECT_LT(distance(exact[0], cuda[0]), most);
  EXPECT_LT(distance(exact[0], two[0]), most);
  EXPECT_TRUE(equal(two[0], two[1]));
  EXPECT_LT(loss_distance(exact[0], train(1, with(options, "amp=bf16"))[0]), 3e-2);
  EXPECT_TRUE(equal(train(1, with(options, "cuda-graph=off"))[0], cuda[0]));
  const Options saved = with(options, "save-dir=" + (folder / "cuda"));
  train(1, with(saved, "steps=3"));
  EXPECT_TRUE(equal(train(1, with(saved, "resume=auto"))[0], cuda[0]));
  const Options started = with(options, "save-dir=" + (folder / "cpu"));
  train(1, with(on_cpu(started), "steps=3"));
  EXPECT_LT(distance(exact[0], train(1, with(started, "resume=auto"))[0]), most);
}

// On the device what is frozen keeps its bits, and each group its own rate, in captured steps too.
TEST_F(CudaTrain, FrozenParametersAndRatesOfGroupsAgreeWithTheCpu) {
  const auto array = [](const RankResult& result, const std::string& name) {
    for (const io::NamedArray& each : result.state)
      if (each.name == name) return each.data;
    ADD_FAILURE() << "no " << name;
    return std::vector<std::byte>{};
  };
  for (const Options& options : {with(kMlp, "freeze=layers.1.* lr-group=layers.2.*=3x"),
                                 with(kConvnet,
                                      "freeze=layer1.* lr-group=fc.*=3x,*.bias=2x "
                                      "weight-decay=0.1 no-decay=norms,biases"),
                                 with(kConvnet, "freeze=layer2.*"), with(kMlp, "freeze=*.bias")}) {
    const auto cuda = train(1, options), cpu = train(1, on_cpu(options)), two = train(2, options);
    EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-5);
    EXPECT_LT(distance(cpu[0], cuda[0]), 1e-5);
    const bool mlp = options.at("model") != "convnet";
    const std::string frozen = options.at("freeze") == "*.bias"     ? "layers.0.bias"
                               : mlp                                ? "layers.1.weight"
                               : options.at("freeze") == "layer1.*" ? "layer1.0.weight"
                                                                    : "layer2.1.weight";
    for (const RankResult* each : {&cuda[0], &two[0], &two[1]})
      EXPECT_EQ(array(*each, frozen), array(cpu[0], frozen)) << frozen;
  }
  const Options bf16 = with(kMlp, "freeze=layers.0.* amp=bf16");
  EXPECT_EQ(array(train(1, bf16)[0], "layers.0.weight"),
            array(train(1, on_cpu(bf16))[0], "layers.0.weight"));
}

// Plain loops over what the host sees after each step, captured ones among them.
TEST_F(CudaTrain, AMovingAverageFollowsTheWeights) {
  std::vector<float> expected, found;
  const auto follow = [&](int, engine::TrainState& state) {
    const engine::HostView view(state.home, engine::Access::kRead);
    const std::span<float> values = state.model.parameters.values.span<float>(),
                           average = engine::moving_average(state.optimizer)->span<float>();
    if (expected.empty()) expected.assign(values.begin(), values.end());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      volatile float share = 0.25f * (values[i] - expected[i]);
      expected[i] += share;
    }
    found.assign(average.begin(), average.end());
  };
  train(1, with(kMlp, "ema=0.75"), follow);
  EXPECT_EQ(found, expected);
  const test_support::TemporaryDirectory folder;
  const Options saved = with(kMlp, "ema=0.75 save-dir=" + folder.path().string());
  train(1, with(saved, "steps=3"));
  train(1, with(saved, "resume=auto"), [&](int, engine::TrainState& state) {
    const engine::HostView view(state.home, engine::Access::kRead);
    const std::span<float> average = engine::moving_average(state.optimizer)->span<float>();
    found.assign(average.begin(), average.end());
  });
  EXPECT_EQ(found, expected) << "resumed";
}

TEST_F(CudaTrain, ResidualNetworkAgreesWithTheCpu) {
  const Options options =
      "model=resnet20-cifar synthetic-shape=8x8x3 batch-size=3 steps=2 lr=0.05 "
      "device=cuda";
  const auto cuda = train(1, options), cpu = train(1, on_cpu(options));
  EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-4);
  EXPECT_LT(distance(cpu[0], cuda[0], io::Section::kBuffer), 1e-3);
}

// Depthwise layers with strides 1 and 2, a channel multiplier, and groups of several channels.
TEST_F(CudaTrain, ConvolutionsOfGroupsAgreeWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  const auto conv = [](const char* name, const char* rest) {
    return std::string("[[layer]]\nkind = \"conv2d\"\nname = \"") + name + "\"\n" + rest +
           "\n[[layer]]\nkind = \"relu\"\n";
  };
  test_support::write_text(
      folder / "net.toml",
      conv("stem", "out_channels = 8\npadding = 1") +
          conv("depthwise", "out_channels = 8\npadding = 1\ngroups = 8") +
          conv("expand", "out_channels = 16\nkernel = 1") +
          conv("strided", "out_channels = 16\nkernel = 5\nstride = 2\npadding = 2\ngroups = 16") +
          conv("grouped", "out_channels = 12\npadding = 1\ngroups = 4") +
          conv("multiplied", "out_channels = 24\npadding = 1\nbias = false\ngroups = 12") +
          "[[layer]]\nkind = \"global_average_pool\"\n[[layer]]\nkind = \"dense\"\nname = "
          "\"fc\"\nout = \"classes\"\n");
  const Options options = "model=" + (folder / "net.toml") +
                          " synthetic-shape=9x8x3 batch-size=6 steps=4 lr=0.05 momentum=0.9 "
                          "device=cuda";
  const auto cpu = train(1, on_cpu(options));
  for (const auto& [amp, most] : std::map<std::string, double>{
           {"off", 1e-5}, {"tf32", 2e-3}, {"O1", 2e-3}, {"O2", 1e-2}, {"bf16", 3e-2}}) {
    const auto one = train(1, with(options, "amp=" + amp));
    EXPECT_LT(loss_distance(cpu[0], one[0]), most) << amp;
    EXPECT_LT(distance(cpu[0], one[0]), 10 * most) << amp;
    const auto two = train(2, with(options, "amp=" + amp));
    EXPECT_LT(distance(cpu[0], two[0]), 10 * most) << amp;
    EXPECT_TRUE(equal(two[0], two[1])) << amp;
  }
}

TEST_F(CudaTrain, EvaluatesAsTheCpuDoes) {
  const Options options = with(kMlp, "eval-every=3");
  const auto cuda = train(1, options), cpu = train(1, on_cpu(options));
  EXPECT_NEAR(cuda[0].last_eval.loss, cpu[0].last_eval.loss, 1e-5);
  EXPECT_EQ(cuda[0].last_eval.correct, cpu[0].last_eval.correct);
  EXPECT_EQ(cuda[0].last_eval.samples, cpu[0].last_eval.samples);
}

TEST_F(CudaTrain, CapturedStepsGiveTheBitsOfStraightOnes) {
  for (const Options& options : {with(kMlp, "steps=12"), with(kMlp, "batch-size=13 steps=12")}) {
    const auto captured = train(1, options), straight = train(1, with(options, "cuda-graph=off"));
    EXPECT_TRUE(equal(captured[0], straight[0]));
    EXPECT_EQ(captured[0].losses, straight[0].losses);
  }
}

TEST_F(CudaTrain, ReplicasThatAverageGradientsEndBitIdentical) {
  const Options options = with(kMlp, "batch-size=13");
  const auto one = train(1, options);
  for (const int world : {2, 3}) {
    const auto many = train(world, options);
    EXPECT_LT(distance(one[0], many[0]), 1e-5);
    for (int r = 1; r < world; ++r)
      EXPECT_TRUE(equal(many[0], many[static_cast<std::size_t>(r)])) << "rank " << r;
  }
}

TEST_F(CudaTrain, SynchronisedStatisticsMakeReplicasEqual) {
  const Options options =
      "model=resnet20-cifar synthetic-shape=8x8x3 batch-size=4 steps=2 lr=0.05 "
      "device=cuda sync-bn=true";
  const auto two = train(2, options);
  EXPECT_TRUE(equal(two[0], two[1]));
  EXPECT_LT(loss_distance(train(1, on_cpu(options))[0], two[0]), 1e-4);
}

TEST_F(CudaTrain, ParameterAveragingWorksOnTheDevicesState) {
  const std::pair<const char*, const char*> ways[] = {
      {"params", "0"}, {"diloco", "0"}, {"slowmo", "0"}, {"post-local", "2"},
      {"diloco", "2"}, {"slowmo", "2"}, {"gossip", "0"}, {"gossip", "2"}};
  for (const auto& [sync, warmup] : ways) {
    const Options options = with(
        kMlp, std::string("batch-size=12 sync=") + sync + " sync-every=2 sync-warmup=" + warmup);
    const auto cuda = train(2, options), cpu = train(2, on_cpu(options));
    EXPECT_LT(distance(cpu[0], cuda[0]), 1e-5) << sync;
    EXPECT_TRUE(same_bits(cuda[0], cuda[1], io::Section::kParameter)) << sync;
    EXPECT_EQ(cuda[0].averagings, cpu[0].averagings) << sync;
  }
}

TEST_F(CudaTrain, AveragingWithoutWaitingForLateRanksWorksOnTheDevicesState) {
  for (const char* sync : {"sync=params", "sync=diloco", "sync=diloco sync-warmup=2"}) {
    const Options options = with(kMlp, "batch-size=12 sync-every=2", sync);
    const Options patient = with(options, "stale=2 stale-patience=1000000");
    const auto all = train(2, options), stale = train(2, patient);
    EXPECT_TRUE(same_bits(all[0], stale[0], io::Section::kParameter)) << sync;
    const auto hasty = train(2, with(options, "stale=1 stale-patience=0 log-every=0"));
    EXPECT_TRUE(same_bits(hasty[0], hasty[1], io::Section::kParameter)) << sync;
  }
}

TEST_F(CudaTrain, ResumesBitByBitAndMovesBetweenCpuAndDevice) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const test_support::TemporaryDirectory folder;
    const Options base = with(kMlp, std::string("optimizer=") + optimizer + " momentum=" +
                                        (std::string(optimizer) == "sgd" ? "0.9" : "") +
                                        " lr=0.002 deterministic=true seed=3");
    const auto whole = train(1, with(base, "steps=7"));
    const std::string path = folder / "a";
    train(1, with(base, std::string("steps=3 save-dir=") + path));
    const auto resumed =
        train(1, with(base, std::string("steps=7 save-dir=") + path + " resume=auto"));
    EXPECT_TRUE(equal(whole[0], resumed[0])) << optimizer;
    const std::string other = folder / "b";
    train(1, with(on_cpu(base), std::string("steps=3 save-dir=") + other));
    const auto moved =
        train(1, with(base, std::string("steps=7 save-dir=") + other + " resume=auto"));
    EXPECT_LT(distance(whole[0], moved[0]), 5e-4) << optimizer;
    const auto back =
        train(1, with(on_cpu(base), std::string("steps=7 save-dir=") + path + " resume=auto"));
    EXPECT_LT(distance(whole[0], back[0]), 5e-4) << optimizer;
  }
}

TEST_F(CudaTrain, EveryPrecisionTrains) {
  const auto cpu = train(1, on_cpu(kConvnet));
  for (const auto& [amp, most] : std::map<std::string, double>{
           {"off", 1e-5}, {"tf32", 2e-3}, {"O1", 2e-3}, {"O2", 1e-2}, {"bf16", 3e-2}}) {
    const auto cuda = train(1, with(kConvnet, std::string("amp=") + amp));
    EXPECT_LT(loss_distance(cpu[0], cuda[0]), most) << amp;
    EXPECT_LT(distance(cpu[0], cuda[0]), 10 * most) << amp;
  }
}

TEST_F(CudaTrain, LossScaleIsSharedAndSurvivesResumption) {
  // A scale that overflows binary16 at once: the first steps are skipped, by all ranks alike, until
  // it has come down.
  const Options options = with(kMlp, "amp=O2 lr=0.01 steps=8 batch-size=6 loss-scale=dynamic");
  for (const char* sync : {"grad", "params"}) {
    const auto two = train(2, with(options, std::string("sync=") + sync));
    EXPECT_TRUE(same_bits(two[0], two[1], io::Section::kParameter)) << sync;
    EXPECT_TRUE(std::isfinite(two[0].losses.back())) << sync;
  }
  const test_support::TemporaryDirectory folder;
  const auto whole = train(1, options);
  train(1, with(options, std::string("steps=3 save-dir=") + folder / "c"));
  const auto resumed =
      train(1, with(options, std::string("save-dir=") + folder / "c" + " resume=auto"));
  EXPECT_TRUE(equal(whole[0], resumed[0]));
}

TEST_F(CudaTrain, TextModelAgreesWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  test_support::write_text(folder / "input.txt", text);
  const Options options = "model=gpt-nano dataset=text data-dir=" + folder.path().string() +
                          " context=8 batch-size=2 steps=2 optimizer=adamw lr=0.001 device=cuda "
                          "dropout=0";
  const auto cuda = train(1, options), cpu = train(1, on_cpu(options));
  EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-5);
  EXPECT_LT(distance(cpu[0], cuda[0]), 1e-4);
}

TEST_F(CudaTrain, ModelsOfBranchesAgreeWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "branches.toml", kBranches);
  const Options options = with("synthetic-shape=7x9x3 batch-size=5 steps=12 lr=0.1 device=cuda",
                               "model=" + folder / "branches.toml");
  const auto cpu = train(1, on_cpu(options)), captured = train(1, options),
             straight = train(1, with(options, "cuda-graph=off")), two = train(2, options);
  EXPECT_LT(loss_distance(cpu[0], captured[0]), 1e-5);
  EXPECT_LT(distance(cpu[0], captured[0]), 1e-4);
  EXPECT_TRUE(equal(captured[0], straight[0]));
  EXPECT_EQ(captured[0].losses, straight[0].losses);
  EXPECT_LT(distance(cpu[0], two[0]), 1e-4);
  EXPECT_TRUE(equal(two[0], two[1]));
  for (const auto& [amp, most] :
       std::map<std::string, double>{{"tf32", 2e-3}, {"O1", 2e-3}, {"O2", 1e-2}, {"bf16", 3e-2}}) {
    const auto rounded = train(1, with(options, "amp=" + amp));
    EXPECT_LT(loss_distance(cpu[0], rounded[0]), most) << amp;
    EXPECT_LT(distance(cpu[0], rounded[0]), 10 * most) << amp;
  }
}

// Losses and parameters, in captured steps and without, on one rank and on two.
void expect_as_on_the_cpu(const Options& options) {
  const auto cpu = train(1, on_cpu(options)), cuda = train(1, options), two = train(2, options),
             straight = train(1, with(options, "cuda-graph=off"));
  EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-4);
  EXPECT_LT(distance(cpu[0], cuda[0]), 1e-4);
  EXPECT_TRUE(equal(cuda[0], straight[0]));
  EXPECT_EQ(cuda[0].losses, straight[0].losses);
  EXPECT_LT(distance(cpu[0], two[0]), 1e-4);
  EXPECT_LT(loss_distance(cpu[0], two[0]), 1e-4);
}

TEST_F(CudaTrain, WeightedClassesAndSeveralLabelsAgreeWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  std::string table = "a,b,u,v,k\n";
  for (int i = 0; i < 45; ++i)
    table += std::to_string(i * 37 % 41) + "," + std::to_string(i * i % 23) + "," +
             (i * 37 % 41 > 20 ? "1," : "0,") +
             (i % 4 == 1        ? ","
              : i * i % 23 > 15 ? "1,"
                                : "0,") +
             std::to_string(i * i % 3) + "\n";
  test_support::write_text(folder / "rows.csv", table);
  const Options common =
      with("dataset=csv batch-size=7 steps=12 lr=0.05 eval-every=4 device=cuda model=mlp",
           "annotations=" + folder / "rows.csv");
  const Options labels = with(common, "task=multi-label label-column=u,v columns=a,b");
  expect_as_on_the_cpu(labels);
  expect_as_on_the_cpu(with(labels, "class-weights=2,0.5"));
  expect_as_on_the_cpu(with(common, "label-column=k columns=a,b class-weights=0.25,3"));
}

// Losses, parameters and errors; targets are not rounded with any --amp.
TEST_F(CudaTrain, RegressionsAgreeWithTheCpu) {
  const test_support::TemporaryDirectory folder;
  std::string table = "a,b,price\n";
  for (int i = 0; i < 45; ++i)
    table += std::to_string(i * 37 % 41) + "," + std::to_string(i * i % 23) + "," +
             std::to_string(900 + 7 * (i * 37 % 41) - 11 * (i * i % 23)) + "\n";
  test_support::write_text(folder / "homes.csv", table);
  test_support::write_text(folder / "small.toml", R"(layer = [
  {kind = "flatten"},
  {kind = "dense", name = "hidden", out = 17},
  {kind = "relu"},
  {kind = "dense", name = "out", out = "classes"}]
)");
  for (const char* loss : {"loss=mse", "loss=mae"}) {
    SCOPED_TRACE(loss);
    const Options options =
        with("dataset=csv task=regression batch-size=6 steps=12 lr=0.05 eval-every=4 device=cuda",
             loss, "annotations=" + folder / "homes.csv" + " model=" + (folder / "small.toml"));
    const auto cpu = train(1, on_cpu(options)), cuda = train(1, options), two = train(2, options),
               straight = train(1, with(options, "cuda-graph=off"));
    EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-4);
    EXPECT_LT(distance(cpu[0], cuda[0]), 1e-4);
    EXPECT_TRUE(equal(cuda[0], straight[0]));
    EXPECT_EQ(cuda[0].losses, straight[0].losses);
    EXPECT_LT(distance(cpu[0], two[0]), 1e-4);
    EXPECT_TRUE(equal(two[0], two[1]));
    for (const RankResult* each : {&cuda[0], &two[0]}) {
      ASSERT_EQ(each->evals.size(), cpu[0].evals.size());
      for (std::size_t i = 0; i < cpu[0].evals.size(); ++i) {
        const engine::EvalReport &found = each->evals[i], &expected = cpu[0].evals[i];
        ASSERT_TRUE(found.errors && expected.errors);
        EXPECT_NEAR(found.errors->mse, expected.errors->mse, 1e-4 * expected.errors->mse);
        EXPECT_NEAR(found.errors->mae, expected.errors->mae, 1e-4 * expected.errors->mae);
        EXPECT_NEAR(found.errors->r2, expected.errors->r2, 1e-4);
        EXPECT_NEAR(found.loss, expected.loss, 1e-4 * expected.loss);
        EXPECT_EQ(found.samples, expected.samples);
      }
    }
    for (const auto& [amp, most] :
         std::map<std::string, double>{{"tf32", 1e-2}, {"O1", 1e-2}, {"O2", 2e-2}, {"bf16", 0.1}}) {
      const auto rounded = train(1, with(options, "amp=" + amp));
      EXPECT_LT(loss_distance(cpu[0], rounded[0]), most) << amp;
      EXPECT_NEAR(rounded[0].last_eval.errors->r2, cpu[0].last_eval.errors->r2, most) << amp;
    }
  }
}

// Codes of gradients pass through host memory. Where codes are rounded, what differs in the last
// bit may be rounded to another code.
TEST_F(CudaTrain, CompressedGradientsAreThoseOfTheCpu) {
  struct Method {
    const char* options;
    double most;  // of the distance from the CPU's parameters
  };
  for (const auto& [method, most] :
       {Method{"compress=bf16", 1e-4}, Method{"compress=topk topk-ratio=0.05", 1e-4},
        Method{"compress=powersgd powersgd-rank=2", 1e-4}, Method{"compress=int8", 1e-3},
        Method{"compress=int4", 1e-2},
        Method{"compress=sparse sparse-ratio=0.1 sparse-warmup=0 momentum=0", 1e-3}}) {
    const Options options = with(kMlp, "batch-size=13", method);
    const auto cuda = train(2, options), cpu = train(2, on_cpu(options));
    EXPECT_TRUE(equal(cuda[0], cuda[1])) << method;
    EXPECT_EQ(cuda[0].bytes_sent, cpu[0].bytes_sent) << method;
    EXPECT_LT(distance(cpu[0], cuda[0]), most) << method;
  }
}

TEST_F(CudaTrain, ASlowRankTakesFewerLocalSteps) {
  const Options options = with(kMlp, "sync=params sync-every=4 local-steps=3:1 batch-size=12");
  const auto cuda = train(2, options), cpu = train(2, on_cpu(options));
  EXPECT_TRUE(equal(cuda[0], cuda[1]));
  EXPECT_LT(distance(cpu[0], cuda[0]), 1e-5);
  EXPECT_EQ(cuda[1].whole.counters, cpu[1].whole.counters);
}

// Its running statistics are those of another pass over the training data.
TEST_F(CudaTrain, TheAverageOfTheLastEpochsIsThatOfTheCpu) {
  for (const Options& more :
       {Options{}, Options("grad-accum=2 sync-bn=true"), Options("amp=bf16")}) {
    const Options options =
        with(kConvnet, "steps= epochs=2 synthetic-size=30 average-last=2 eval-every=1e", more);
    const auto cuda = train(2, options), cpu = train(2, on_cpu(options));
    const engine::EvalReport &here = cuda[0].evals.back(), &there = cpu[0].evals.back();
    EXPECT_STREQ(here.weights, "average");
    EXPECT_NEAR(here.loss, there.loss, more.contains("amp") ? 0.05 : 1e-4);
    EXPECT_EQ(cuda[1].evals.back().loss, here.loss);
  }
}

// A weight of rank 0 is not a number from step 2 to step 3, so that the gradients of step 3 are
// not.
AfterStep spoil_step_3(float& weight) {
  return [&weight](int rank, engine::TrainState& state) {
    if (rank != 0) return;
    const engine::HostView view(state.home, engine::Access::kWrite);
    const engine::FlatBuffer& values = state.model.parameters.values;
    float& here = values.view(*values.find("fc.weight")).as<float>()[1];
    if (state.progress.global_step == 2) weight = std::exchange(here, std::nanf(""));
    if (state.progress.global_step == 3) here = weight;
  };
}

TEST_F(CudaTrain, AStepThatIsNotFiniteIsSkippedAndLeavesNoTrace) {
  const Options options = with(kConvnet, "steps=5 on-nonfinite=skip");
  for (const Options& more : {Options("momentum=0.9"), Options("cuda-graph=off clip-grad=0.5"),
                              Options("grad-accum=2"), Options("sync=params sync-every=2")}) {
    const int world = more.contains("sync") ? 2 : 1;
    float weight = 0;
    const auto cuda = train(world, with(options, more), spoil_step_3(weight)),
               cpu = train(world, on_cpu(with(options, more)), spoil_step_3(weight));
    for (const auto& ranks : {cuda, cpu}) {
      EXPECT_EQ(ranks[0].reports.back().skipped_steps, 1);
      EXPECT_EQ(ranks[0].end.global_step, 5);
    }
    EXPECT_LT(distance(cpu[0], cuda[0]), 5e-4);
    EXPECT_LT(distance(cpu[0], cuda[0], io::Section::kBuffer), 1e-5);
  }
  for (const char* amp : {"bf16", "O1", "O2"}) {
    float weight = 0;
    const auto ranks =
        train(2, with(options, "loss-scale=256 amp=" + std::string(amp)), spoil_step_3(weight));
    EXPECT_EQ(ranks[0].reports.back().skipped_steps, 1) << amp;
    EXPECT_TRUE(ranks[0].not_finite.empty());
  }
}

// From step 3 on all steps are skipped, after a resumption, too.
TEST_F(CudaTrain, SkippedStepsAreCountedForEachRun) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      with(kMlp, "lr=1e6 on-nonfinite=skip save-every=3s resume=auto save-dir=" + folder / "a");
  EXPECT_EQ(train(1, with(options, "steps=4"))[0].reports.back().skipped_steps, 2);
  const RankResult resumed = train(1, with(options, "steps=7"))[0];
  EXPECT_EQ(resumed.reports.back().skipped_steps, 3);
  EXPECT_TRUE(equal(resumed, train(1, with(kMlp, "lr=1e6 steps=2"))[0]));
}

TEST_F(CudaTrain, ARunThatDivergesEnds) {
  for (const char* graph : {"auto", "off"}) {
    const Options diverging = with(kMlp, std::string("lr=1e6 cuda-graph=") + graph);
    EXPECT_THROW(train(1, diverging), engine::NonFiniteError);
    const RankResult gone_on = train(1, with(diverging, "on-nonfinite=continue"))[0];
    ASSERT_EQ(gone_on.not_finite.size(), 1u);
    EXPECT_EQ(gone_on.not_finite[0].what, "loss");
    EXPECT_EQ(gone_on.end.global_step, 6);
  }
}

}  // namespace
