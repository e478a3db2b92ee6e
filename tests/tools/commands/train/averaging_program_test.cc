// Averaging policies in the real program: what is told before and after, what files show, what is
// refused.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "backends/group.h"
#include "tests/support/command_words.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

CommandResult train_two_ranks(std::vector<std::string> more) {
  return call(
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--batch-size 12 --log-every 2 --threads 1 --spawn 2",
      more);
}

TEST(AveragingProgram, RanksFilesAreEqualAfterEveryPolicy) {
  for (const std::vector<std::string>& policy : std::vector<std::vector<std::string>>{
           {"--sync", "params", "--sync-every", "3"},
           {"--sync", "diloco", "--sync-every", "3"},
           {"--sync", "diloco", "--sync-every", "2", "--optimizer", "muon", "--lr", "0.01",
            "--average-state", "momentum:4,second:2"},
           {"--sync", "streaming", "--sync-every", "3", "--sync-overlap", "1", "--verify-every",
            "1"},
           {"--sync", "post-local", "--sync-warmup", "2", "--sync-every", "2", "--sync-island",
            "host"},
           {"--sync", "gossip", "--sync-every", "3", "--verify-every", "1"},
           {"--sync", "diloco", "--sync-every", "2", "--stale", "2", "--verify-every", "1"},
           {"--compress", "powersgd"},
           {"--compress", "int8"},
           {"--compress", "sparse"},
           {"--sync", "slowmo", "--sync-every", "2", "--compress", "int8"},
           {"--sync", "streaming", "--sync-every", "3", "--sync-overlap", "1", "--compress",
            "int4"}}) {
    const TemporaryDirectory folder;
    std::vector<std::string> arguments{"--save-dir", folder.path().string(), "--save-rank-models",
                                       "--steps", "7"};
    arguments.insert(arguments.end(), policy.begin(), policy.end());
    expect_success(train_two_ranks(arguments));
    expect_success(
        call("verify", folder / "final_model_rank_0.ckpt", folder / "final_model_rank_1.ckpt"));
  }
}

TEST(AveragingProgram, TellsThePlanWhatWasSentAndTheSpread) {
  const TemporaryDirectory folder;
  const CommandResult result =
      expect_success(train_two_ranks({"--sync", "slowmo", "--sync-every", "500", "--epochs", "2",
                                      "--metrics", folder / "m.jsonl", "--average-state", "all"}));
  expect_words(result.out, {"sync slowmo every 500, alpha 1 beta 0.5",
                            "Averaging: parameters every 500 steps: 0 averagings by the",
                            "= 500 10 steps 5", "no outer step", "Spread averaging 1: ",
                            "6/6 2 times 10 steps 0 outer", "Bytes sent by rank 0: "});
  const std::string metrics = test_support::read_text(folder / "m.jsonl");
  expect_words(metrics, {"\"event\":\"averaging\",\"step\":10,\"epoch\":1,\"time\":",
                         "\"averagings\":2,\"bytes_sent\":", "\"spread\":"});
}

TEST(AveragingProgram, TellsWhatIsCompressedAndWhatWasSent) {
  const std::vector<std::string> diloco{"--sync", "diloco", "--sync-every", "3", "--steps", "6"};
  const auto bytes_in = [](const CommandResult& result) {
    const std::string before = "Bytes sent by rank 0: ";
    const std::size_t at = result.out.find(before);
    EXPECT_NE(at, std::string::npos) << result.out;
    std::string digits = result.out.substr(at + before.size(), 20);
    std::erase(digits, ',');
    return std::stod(digits);
  };
  const double plain = bytes_in(expect_success(train_two_ranks(diloco)));
  for (const auto& [method, least] : {std::pair{"int4", 7.5}, {"sparse", 50.0}}) {
    const TemporaryDirectory folder;
    std::vector<std::string> arguments = diloco;
    for (const std::string& more :
         {std::string("--compress"), std::string(method), std::string("--save-rank-models"),
          std::string("--save-dir"), folder.path().string()})
      arguments.push_back(more);
    const CommandResult result = expect_success(train_two_ranks(arguments));
    expect_success(
        call("verify", folder / "final_model_rank_0.ckpt", folder / "final_model_rank_1.ckpt"));
    expect_words(result.out, {std::string(method), "Averaging parameters", method, " bytes\n",
                              "parameters (as ", "with 2 outer steps"});
    EXPECT_GE(plain / bytes_in(result), least) << method;
  }
}

TEST(AveragingProgram, TellsTheOuterStepsThatTheRuleChooses) {
  const CommandResult rule =
      expect_success(train_two_ranks({"--sync", "diloco", "--sync-every", "2", "--epochs", "2"}));
  expect_words(rule.out, {"sync diloco every 2, outer lr auto momentum auto nesterov",
                          "Averaging: outer lr 1 to 0.963, momentum 0 to 0.111, in outer steps 1 "
                          "to 5",
                          "with 5 outer steps"});
  const CommandResult given =
      expect_success(train_two_ranks({"--sync", "diloco", "--sync-every", "2", "--epochs", "2",
                                      "--outer-lr", "0.70", "--outer-momentum", "0.9"}));
  expect_words(given.out, {"sync diloco every 2, outer lr 0.7 momentum 0.9 nesterov"});
  EXPECT_EQ(given.out.find("Averaging: outer"), std::string::npos) << given.out;
}

TEST(AveragingProgram, NonsenseIsRefusedInOneLine) {
  for (const std::vector<std::string>& nonsense : std::vector<std::vector<std::string>>{
           {"--sync", "params", "--sync-every", "0"},
           {"--outer-lr", "0.5"},
           {"--sync", "diloco", "--outer-momentum", "some"},
           {"--sync", "params", "--average-state", "momentum:0"},
           {"--sync", "params", "--average-state", "second:2"},
           {"--sync", "streaming", "--sync-every", "4", "--sync-overlap", "4"},
           {"--sync", "params", "--sync-schedule", "0:1,10:4,5:2"},
           {"--sync", "post-local"},
           {"--sync", "diloco", "--compress", "topk"},
           {"--sync", "diloco", "--sparse-ratio", "0.1"},
           {"--sync", "gossip", "--compress", "int8"},
           {"--sync", "gossip", "--average-state", "momentum"},
           {"--sync", "gossip", "--sync-island", "host"},
           {"--sync", "gossip", "--local-steps", "auto"},
           {"--sync", "gossip", "--sync-overlap", "2"},
           {"--stale", "2"},
           {"--sync", "gossip", "--stale", "2"},
           {"--sync", "slowmo", "--stale", "2"},
           {"--sync", "diloco", "--stale", "-1"},
           {"--sync", "diloco", "--stale-patience", "0.5"},
           {"--sync", "diloco", "--stale", "1", "--stale-patience", "-0.5"},
           {"--sync", "diloco", "--stale", "1", "--compress", "int8"},
           {"--sync", "diloco", "--stale", "1", "--local-steps", "auto"},
           {"--sync", "none", "--compress", "int8"},
           {"--compress", "int8", "--sparse-bits", "2"},
           {"--compress", "sparse", "--sparse-momentum", "0.9"},
           {"--compress", "sparse", "--sparse-decay", "0.9"},
           {"--sync", "params", "--compress", "sparse", "--sparse-warmup", "9"},
           {"--compress", "bf16", "--reduction-order", "canonical"}}) {
    const CommandResult result = train_two_ranks(nonsense);
    EXPECT_EQ(result.exit_code, 78) << nonsense[0] << ' ' << nonsense[1];
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.err.find("engine: error: --"), 0u) << result.err;
  }
}

// Returns the figures of `column` in a dry run's table of memory, one for each rank.
std::vector<double> memory_of(const CommandResult& dry_run, const std::string& column) {
  std::istringstream lines(dry_run.out);
  std::string line;
  std::vector<std::string> names;
  std::vector<double> found;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    const std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    if (names.empty()) {
      if (cells.size() > 3 && cells[0] == "rank" && cells[1] == "host") names = cells;
      continue;
    }
    const auto at = static_cast<std::size_t>(std::ranges::find(names, column) - names.begin());
    if (cells.size() != names.size() || at == names.size()) break;
    found.push_back(std::stod(cells[at]));
  }
  return found;
}

// Rank 0 copies the state to save it, rank 1 a mean of parameters; both keep what compressed
// gradients have not sent yet twice.
TEST(AveragingProgram, PlansTheMemoryOfCopiesForCheckpoints) {
  const TemporaryDirectory folder;
  const std::vector<std::string> train = argv(
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--batch-size 12 --momentum 0.9 --spawn 3 --threads 1 --dry-run");
  const auto plan = [&](const std::string& options) {
    return expect_success(
        call(train, test_support::split_words(options), "--save-dir", folder / "run"));
  };
  const std::vector<double> model = memory_of(plan("--sync grad"), "parameters");
  ASSERT_EQ(model.size(), 3u);
  const double m = model[0], near = 0.1;  // MiB
  const auto expect = [&](const std::string& options, std::vector<double> models,
                          const std::string& column = "saving") {
    SCOPED_TRACE(options + ", " + column);
    const std::vector<double> found = memory_of(plan(options), column);
    ASSERT_EQ(found.size(), 3u);
    for (std::size_t r = 0; r < 3; ++r) EXPECT_NEAR(found[r], models[r] * m, near) << r;
  };
  EXPECT_TRUE(memory_of(expect_success(call(train)), "saving").empty());
  expect("--sync grad", {2, 0, 0});
  expect("--sync params --sync-every 2", {4, 2, 0});
  expect("--sync params --sync-every 2 --average-state all", {2, 2, 0});
  expect("--sync none", {6, 0, 0});
  expect("--compress int8", {2, 2, 1}, "averaging");
}

// The plan of averaging in pairs, before a run; every backend of processes makes the pairs'
// communicators.
TEST(AveragingProgram, PairsAverageOverEveryBackendAndAreToldBefore) {
  const std::vector<std::string> train = argv(
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--batch-size 12 --threads 1 --spawn 3 --sync gossip --sync-every 2");
  const CommandResult plan = expect_success(call(train, "--dry-run"));
  expect_words(plan.out, {"sync gossip every 2", "2 steps 2 averagings 1", "382315 bytes 3 ranks"});
  for (const backends::BackendInfo& backend : backends::list_backends()) {
    if (!backend.usable || backend.device_memory || backend.name == "inproc") continue;
    const TemporaryDirectory folder;
    expect_success(call(train, "--save-rank-models --backend", backend.name, "--save-dir",
                        folder.path().string()));
    for (const char* other : {"1", "2"})
      expect_success(call("verify", folder / "final_model_rank_0.ckpt",
                          folder / "final_model_rank_" + other + ".ckpt"));
  }
}

// Its partner of the moment waits for it, or the others do when all average.
TEST(AveragingProgram, ARankThatDiesWhileRanksAverageInPairsIsNamed) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "m.jsonl";
  test_support::Running job(
      argv(test_support::engine_binary(),
           "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
           "--batch-size 12 --epochs 1000000 --eval-every 0 --log-every 5 --threads 1 --spawn 4 "
           "--sync gossip --metrics",
           metrics, "--flight-dir", folder.path().string()));
  ASSERT_TRUE(test_support::eventually([&] {
    return test_support::workers_of(job.pid()).size() == 4 && std::filesystem::exists(metrics) &&
           test_support::read_text(metrics).find("\"event\":\"step\"") != std::string::npos;
  })) << job.err();
  const std::vector<pid_t> workers = test_support::workers_of(job.pid());
  ASSERT_EQ(workers.size(), 4u);
  kill(workers[2], SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  expect_words(job.err(), {"rank 2: killed by signal 9", "rank 0: ", "rank 2 (host ",
                           "pid " + std::to_string(workers[2]) + ") died"});
}

}  // namespace
