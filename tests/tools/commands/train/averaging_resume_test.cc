// Runs that are resumed with another averaging: replicas that have to be equal are, and lines name
// dropped states and options.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/command_words.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_words;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

const std::vector<std::string> kTrain = test_support::split_words(
    "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
    "--batch-size 12 --threads 1 --spawn 3 --eval-every 0");

// Trains 4 steps with the first options, and up to step 8 with the others.
CommandResult resumed(const TemporaryDirectory& folder, const std::string& before,
                      const std::string& then) {
  expect_success(
      call(kTrain, "--steps 4", test_support::split_words(before), "--save-dir", folder / "run"));
  return expect_success(call("train --resume", folder / "run",
                             "--spawn 3 --steps 8 --save-rank-models",
                             test_support::split_words(then)));
}

void expect_equal_models(const TemporaryDirectory& folder) {
  for (const char* other : {"1", "2"})
    expect_success(call("verify", folder / "run/final_model_rank_0.ckpt",
                        folder / "run/final_model_rank_" + other + ".ckpt"));
}

constexpr const char* kOwnMoments = "--sync params --sync-every 2 --momentum 0.9";
constexpr const char* kTellsOneState = ".ckpt optimizer state for each rank: all rank 0, gradients";

TEST(ResumedAveraging, RanksThatAverageGradientsBeginWithOneOptimizerState) {
  for (const std::string policy :
       {"--sync post-local --sync-every 2 --sync-warmup 100", "--sync slowmo --sync-schedule 100:2",
        "--sync gossip --sync-every 2 --sync-warmup 100",
        "--sync diloco --sync-every 2 --sync-warmup 100"}) {
    SCOPED_TRACE(policy);
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, kOwnMoments, policy + " --verify-every 1");
    expect_equal_models(folder);
    expect_words(result.out + result.err, {kTellsOneState});
  }
}

// Moments at step 4 are of 2 updates on the slower ranks, with which AdamW corrects them.
TEST(ResumedAveraging, RanksThatAverageGradientsBeginWithOneNumberOfUpdates) {
  const TemporaryDirectory folder;
  resumed(folder, "--sync params --sync-every 2 --optimizer adamw --local-steps 2:1:1",
          "--sync post-local --sync-every 2 --sync-warmup 100 --verify-every 1");
  expect_equal_models(folder);
}

TEST(ResumedAveraging, RanksOfAnIslandBeginWithOneOptimizerState) {
  const TemporaryDirectory folder;
  const CommandResult result =
      resumed(folder, kOwnMoments, "--sync params --sync-every 100 --sync-island host");
  expect_equal_models(folder);
  expect_words(result.out + result.err, {"optimizer state ranks of each host first rank"});
}

TEST(ResumedAveraging, GradientsAreAveragedFromOneOptimizerState) {
  for (const std::string policy :
       {"--sync grad --verify-every 1", "--sync grad --shard-optimizer"}) {
    SCOPED_TRACE(policy);
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, kOwnMoments, policy);
    expect_equal_models(folder);
    expect_words(result.out + result.err, {"optimizer state rank 0"});
  }
}

TEST(ResumedAveraging, ARunThatGoesOnDropsNoState) {
  for (const std::string policy : {"--sync params --sync-every 2", "--sync none",
                                   "--sync post-local --sync-every 2 --sync-warmup 6"}) {
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, policy + " --momentum 0.9", "");
    EXPECT_EQ((result.out + result.err).find("for each"), std::string::npos)
        << result.out << result.err;
  }
}

TEST(ResumedAveraging, TellsThatIndependentModelsAreDropped) {
  for (const std::string policy : {"--sync grad", "--sync params --sync-every 2",
                                   "--sync post-local --sync-every 2 --sync-warmup 100"}) {
    SCOPED_TRACE(policy);
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, "--sync none --momentum 0.9", policy);
    expect_equal_models(folder);
    expect_words(result.out + result.err,
                 {".ckpt model each 3 ranks: all rank 0's state, dropped"});
  }
}

// Statistics over all ranks are compared, and were not equal before.
TEST(ResumedAveraging, SynchronizedStatisticsBeginEqual) {
  const TemporaryDirectory folder;
  const std::string model = folder / "model.toml";
  test_support::write_text(model, test_support::layers_toml(R"(
sample_shape=[6,6,1] classes=10
conv2d conv out_channels=4 padding=1
batch_norm2d norm
flatten
dense fc out=classes
)"));
  expect_success(
      call("train --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
           "--batch-size 12 --threads 1 --spawn 3 --eval-every 0 --steps 4 "
           "--buffers local --model",
           model, "--save-dir", folder / "run"));
  expect_success(call("train --resume", folder / "run",
                      "--spawn 3 --steps 8 --sync-bn --allow-change sync-bn --verify-every 1 "
                      "--save-rank-models"));
  expect_equal_models(folder);
}

TEST(ResumedAveraging, CountsTheAveragingsOfItsOwnKind) {
  const TemporaryDirectory folder;
  const CommandResult gradients = resumed(folder, kOwnMoments, "--sync grad");
  expect_words(gradients.out, {"6/6 4 steps"});
  const TemporaryDirectory other;
  const CommandResult later =
      resumed(other, kOwnMoments, "--sync post-local --sync-every 2 --sync-warmup 8");
  expect_words(later.out, {"4 steps, 6/6 parameters 0 times 0 steps"});
}

// The line of changes has the names of dropped options with their values.
TEST(ResumedAveraging, TellsWhichOptionsAreDropped) {
  for (const auto& [before, then, told] :
       {std::tuple{"--ema 0.9", "--sync params --sync-every 2", "ema 0.9 -> unset (not used)"},
        {"--compress int8", "--sync gossip --sync-every 2", "compress int8 -> none (not used)"},
        {"--sync params --sync-every 2 --local-steps 2:1:1", "--sync grad",
         "local-steps 2:1:1 -> equal (not used)"},
        {"--sync params --sync-schedule 0:2", "--sync grad",
         "sync-schedule 0:2 -> unset (not used)"}}) {
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, before, then);
    expect_words(result.out + result.err, {told});
  }
}

// An option is dropped together with the option of the run that it depends on.
TEST(ResumedAveraging, OptionsThatDependOnDroppedOnesAreDropped) {
  for (const auto& [before, then, told] :
       {std::tuple{"--sync params --sync-every 2 --stale 1 --stale-patience 0.5", "--sync grad",
                   "stale-patience 0.5 -> 0.1 (not used)"},
        {"--compress sparse --sparse-ratio 0.05", "--sync none",
         "sparse-ratio 0.05 -> 0.02 (not used)"}}) {
    const TemporaryDirectory folder;
    const CommandResult result = resumed(folder, before, then);
    expect_words(result.out + result.err, {told});
  }
}

TEST(ResumedAveraging, OptionsThatAreOffGoWithEveryPolicy) {
  for (const std::string policy : {"grad", "none", "gossip"})
    expect_success(call(kTrain, "--steps 1 --stale 0 --compress none --sync", policy));
}

// The states of an optimizer have other sizes than the gradients, whose memory averagings use.
TEST(ResumedAveraging, ClippedGradientsHaveTheNormOfAnUninterruptedRun) {
  const std::vector<std::string> train = test_support::split_words(
      "train --dataset synthetic --synthetic-shape 8x8x1 --synthetic-size 203 --batch-size 24 "
      "--threads 1 --spawn 2 --eval-every 0 --optimizer muon --average-state all --clip-grad 0.05 "
      "--sync diloco --sync-every 5 --save-every 7s");
  const TemporaryDirectory folder;
  const std::string model = folder / "model.toml";
  test_support::write_text(model, test_support::layers_toml(R"(
sample_shape=[8,8,1] classes=10
flatten
dense a out=100
relu
dense b out=50
relu
dense c out=classes
)"));
  expect_success(call(train, "--model", model, "--steps 18 --save-dir", folder / "whole"));
  expect_success(call(train, "--model", model, "--steps 7 --save-dir", folder / "resumed"));
  expect_success(call("train --resume", folder / "resumed", "--steps 18 --spawn 2"));
  const std::string last = "/step-00000018.ckpt";
  expect_success(call("verify", folder / "whole" + last, folder / "resumed" + last));
}

}  // namespace
