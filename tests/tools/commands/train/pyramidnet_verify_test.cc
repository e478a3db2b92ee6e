// Batch norm without synchronization: after training pyramidnet110 on two ranks, engine verify
// lists exactly the running statistics, in the model's order. And --label-smoothing on the command
// line.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The running statistics of pyramidnet110 as PyTorch's state_dict() lists them.
std::vector<std::string> running_statistics() {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(test_support::read_text(
           test_support::source_directory() + "/tests/models/state_dicts.txt"))) {
    std::istringstream words(line);
    std::string model, name;
    words >> model >> name;
    if (model == "pyramidnet110" && name.find(".running_") != std::string::npos)
      names.push_back(name);
  }
  return names;
}

// Trains on two ranks, in a folder, and compares what each of them ended with.
CommandResult verify_two_ranks(const test_support::TemporaryDirectory& folder,
                               const std::vector<std::string>& more) {
  std::vector<std::string> train =
      argv(engine_binary(),
           "train --model pyramidnet110 --dataset synthetic --limit 8 --batch-size 4 --steps 2 "
           "--threads 1 --synthetic-shape 8x8x3 --eval-every 0 --save-rank-models");
  train.insert(train.end(), {"--spawn", "2", "--backend", PYRAMIDNET_BACKEND, "--save-dir",
                             folder.path().string()});
  train.insert(train.end(), more.begin(), more.end());
  expect_success(run_command(train, {}, 100'000));
  return call("verify", folder / "final_model_rank_0.ckpt", folder / "final_model_rank_1.ckpt");
}

TEST(PyramidNetVerify, ListsThe310RunningStatisticsOfTwoRanks) {
  const test_support::TemporaryDirectory folder;
  const CommandResult verify = verify_two_ranks(folder, {});
  EXPECT_EQ(verify.exit_code, 1);
  const std::vector<std::string> names = lines_of(verify.out);
  ASSERT_EQ(names.size(), 310U) << verify.out;
  EXPECT_EQ(names, running_statistics());
  EXPECT_EQ(names[308], "bn_out.running_mean");
  EXPECT_EQ(names[309], "bn_out.running_var");
  EXPECT_CONTAINS(verify.err,
                  "310 of 880 tensors differ (0 parameters, 310 BatchNorm running "
                  "statistics); in sync except BN");
}

TEST(PyramidNetVerify, ListsNothingWithSynchronisedBatchNorm) {
  const test_support::TemporaryDirectory folder;
  const CommandResult verify = expect_success(verify_two_ranks(folder, {"--sync-bn"}));
  EXPECT_EQ(verify.out, "");
}

// Loss of each training step and of the evaluation at the end, as the metrics file has them.
std::pair<std::string, std::string> first_losses(const std::vector<std::string>& options) {
  const test_support::TemporaryDirectory folder;
  expect_success(
      call("train --model mlp --dataset synthetic --limit 32 "
           "--steps 1 --batch-size 32 --lr 1e-30 --metrics",
           folder / "m", "--log-every 1 --eval-every 1s", options));
  std::pair<std::string, std::string> losses;
  for (const std::string& line : lines_of(test_support::read_text(folder / "m"))) {
    const std::size_t at = line.find("\"loss\":");
    if (at == std::string::npos) continue;
    const std::string loss = line.substr(at, line.find(',', at) - at);
    if (line.find("\"event\":\"step\"") != std::string::npos) losses.first = loss;
    if (line.find("\"event\":\"eval\"") != std::string::npos) losses.second = loss;
  }
  return losses;
}

TEST(LabelSmoothing, ChangesTheTrainingLossAndNotTheEvaluation) {
  const auto plain = first_losses({}), smoothed = first_losses({"--label-smoothing", "0.3"});
  EXPECT_FALSE(plain.first.empty());
  EXPECT_FALSE(plain.second.empty());
  EXPECT_NE(plain.first, smoothed.first);
  EXPECT_EQ(plain.second, smoothed.second);
}

TEST(LabelSmoothing, OutOfRangeIsRefused) {
  const CommandResult result = run_command(argv(
      engine_binary(), "train --model mlp --dataset synthetic --batch-size 8 --label-smoothing 1"));
  EXPECT_EQ(result.exit_code, 78) << result.err;
  EXPECT_CONTAINS(result.err, "label-smoothing is '1'");
}

}  // namespace
