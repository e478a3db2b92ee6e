// A rank is killed: rank 0 saves what the run can continue from, with every kind of averaging; rank
// 1 if rank 0 is killed. docs/runs.md has a table of what is saved; its rows are tested here.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/runs/interrupted_run.h"

namespace {

using interrupted_run::expect_equal_bits_later;
using interrupted_run::interrupted;
using interrupted_run::last_reported_step;
using interrupted_run::Receiver;
using interrupted_run::training;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;

class LossOfRank : public testing::TestWithParam<Receiver> {};

TEST_P(LossOfRank, LosesNoStepOfTheOthers) {
  for (const std::string backend : {"shm", "socket", "gloo", "zmq"}) {
    const TemporaryDirectory folder;
    const CommandResult lost =
        interrupted(folder / "run", {"--backend", backend}, SIGKILL, GetParam());
    EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
    const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
    ASSERT_NE(newest, "") << lost.err;
    EXPECT_CONTAINS(lost.err, "a rank was lost: saved " + newest + ", the last completed step");
    const std::int64_t step = io::load_checkpoint(newest).global_step;
    EXPECT_GE(step, last_reported_step(folder / "run.metrics"));
    EXPECT_CONTAINS(lost.err, "to continue: engine train --resume " + (folder / "run"));
    expect_equal_bits_later(folder, step, 5);
  }
}

// The others miss rank 0, whose process keeps the lock of the folder until it is killed.
TEST(StoppedRank, ZeroLosesNoStepOfTheOthers) {
  const TemporaryDirectory folder;
  const CommandResult stopped = interrupted(
      folder / "run", {"--backend", "socket", "--heartbeat", "2"}, SIGSTOP, Receiver::kRank0);
  EXPECT_EQ(stopped.exit_code, 69) << stopped.err;
  const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
  ASSERT_NE(newest, "") << stopped.err;
  EXPECT_CONTAINS(stopped.err, "a rank was lost: saved " + newest + ", the last completed step");
  const std::int64_t step = io::load_checkpoint(newest).global_step;
  EXPECT_GE(step, last_reported_step(folder / "run.metrics"));
  expect_equal_bits_later(folder, step, 5);
}

const auto kEachRank = testing::Values(Receiver::kRank0, Receiver::kRank1);

std::string name_of(Receiver lost) { return lost == Receiver::kRank0 ? "zero" : "one"; }

INSTANTIATE_TEST_SUITE_P(Ranks, LossOfRank, kEachRank,
                         [](const auto& tested) { return name_of(tested.param); });

// Kills that rank of a run with these options. Returns the step that the other rank saves, which
// stderr names.
std::int64_t step_saved_after_loss(const TemporaryDirectory& folder,
                                   const std::vector<std::string>& options, Receiver killed,
                                   std::string& message) {
  const CommandResult lost = interrupted(folder / "run", options, SIGKILL, killed);
  EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
  const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
  EXPECT_CONTAINS(lost.err, "engine: a rank was lost: saved " + newest + ", the ");
  EXPECT_CONTAINS(lost.err, "to continue: engine train --resume " + (folder / "run"));
  message = lost.err;
  return newest.empty() ? 0 : io::load_checkpoint(newest).global_step;
}

// Ranks continue from the saved step, for five more. Returns stderr.
std::string expect_resumed(const TemporaryDirectory& folder, std::int64_t step,
                           std::vector<std::string> options, const std::string& ranks = "2") {
  options.insert(options.end(), {"--spawn", ranks, "--resume", "auto"});
  const CommandResult resumed =
      expect_success(run_command(training(folder / "run", std::to_string(step + 5), options)));
  EXPECT_CONTAINS(resumed.out,
                  "resumed " + (folder / "run") + "/" + io::checkpoint_file_name(step));
  return resumed.err;
}

struct Averaging {
  std::string name;
  std::vector<std::string> options;
  bool same_bits = true;  // as a run that was never stopped
};
void PrintTo(const Averaging& averaging, std::ostream* out) { *out << averaging.name; }

using Loss = std::tuple<Averaging, Receiver>;
std::string name_of_loss(const testing::TestParamInfo<Loss>& tested) {
  return std::get<0>(tested.param).name + "_" + name_of(std::get<1>(tested.param));
}

// The parent of a lost rank 0 takes seconds to end, so that is tested with one backend.
std::vector<std::string> backends_for(Receiver killed) {
  return killed == Receiver::kRank0 ? std::vector<std::string>{"socket"}
                                    : std::vector<std::string>{"shm", "socket"};
}

class LossWithCodes : public testing::TestWithParam<Loss> {};

// Replicas are equal but for what codes have left unsent.
TEST_P(LossWithCodes, LosesNoStepAndContinuesWithAnyNumberOfRanks) {
  const auto& [averaging, killed] = GetParam();
  const TemporaryDirectory folder;
  std::string message;
  const std::int64_t step = step_saved_after_loss(folder, averaging.options, killed, message);
  EXPECT_GE(step, last_reported_step(folder / "run.metrics")) << message;
  EXPECT_VALUES(message, "completed --compress");
  for (const std::string ranks : {"1", "2", "3"}) {
    const TemporaryDirectory copy;
    std::filesystem::copy(folder / "run", copy / "run", std::filesystem::copy_options::recursive);
    EXPECT_VALUES(expect_resumed(copy, step, averaging.options, ranks),
                  ranks == "1" ? "one rank averages nothing" : "one rank, alone: rank 0 zero");
  }
  if (averaging.same_bits) expect_equal_bits_later(folder, step, 5, averaging.options);
}

// The parent of a lost rank 0 takes seconds to end: not with every code.
INSTANTIATE_TEST_SUITE_P(
    WithoutRank0, LossWithCodes,
    testing::Combine(testing::Values(Averaging{"int8", {"--compress", "int8"}, false},
                                     Averaging{"topk_of_all",
                                               {"--compress", "topk", "--topk-ratio", "1"}}),
                     testing::Values(Receiver::kRank0)),
    name_of_loss);
INSTANTIATE_TEST_SUITE_P(
    WithoutRank1, LossWithCodes,
    testing::Combine(testing::Values(Averaging{"int8", {"--compress", "int8"}, false},
                                     Averaging{"bf16", {"--compress", "bf16"}, false},
                                     Averaging{"powersgd", {"--compress", "powersgd"}, false},
                                     Averaging{"sparse",
                                               {"--compress", "sparse", "--momentum", "0",
                                                "--sparse-momentum", "0.5"},
                                               false},
                                     Averaging{"topk_of_all",
                                               {"--compress", "topk", "--topk-ratio", "1"}}),
                     testing::Values(Receiver::kRank1)),
    name_of_loss);

class LossWithMeans : public testing::TestWithParam<Loss> {};

// Averagings follow each fourth step and the ends of epochs, of six steps. Without momentum, or if
// it is averaged, the state after an averaging is the same on all ranks but for what codes have not
// sent.
TEST_P(LossWithMeans, RepeatsOnlyTheStepsSinceAnAveraging) {
  const auto& [averaging, killed] = GetParam();
  for (const std::string& backend : backends_for(killed)) {
    const TemporaryDirectory folder;
    std::vector<std::string> options{"--sync-every", "4", "--momentum", "0", "--backend", backend};
    options.insert(options.end(), averaging.options.begin(), averaging.options.end());
    std::string message;
    const std::int64_t step = step_saved_after_loss(folder, options, killed, message);
    ASSERT_GT(step, 0) << message;
    EXPECT_TRUE(step % 4 == 0 || step % 6 == 0) << step;
    if (averaging.same_bits) {
      expect_equal_bits_later(folder, step, 5, options);
      continue;
    }
    EXPECT_VALUES(message, "--compress dropped");
    expect_resumed(folder, step, options);
  }
}

INSTANTIATE_TEST_SUITE_P(
    WithoutRank0, LossWithMeans,
    testing::Combine(
        testing::Values(Averaging{"params", {"--sync", "params"}},
                        Averaging{"post_local", {"--sync", "post-local", "--sync-warmup", "4"}},
                        Averaging{
                            "diloco_sparse", {"--sync", "diloco", "--compress", "sparse"}, false}),
        testing::Values(Receiver::kRank0)),
    name_of_loss);
INSTANTIATE_TEST_SUITE_P(
    WithoutRank1, LossWithMeans,
    testing::Combine(
        testing::Values(
            Averaging{"params", {"--sync", "params"}},
            Averaging{"all_states",
                      {"--sync", "params", "--average-state", "all", "--momentum", "0.9"}},
            Averaging{"slowmo", {"--sync", "slowmo"}}, Averaging{"diloco", {"--sync", "diloco"}},
            Averaging{"post_local", {"--sync", "post-local", "--sync-warmup", "4"}},
            Averaging{"local_steps", {"--sync", "params", "--local-steps", "2:1"}},
            Averaging{"params_int8", {"--sync", "params", "--compress", "int8"}, false},
            Averaging{"diloco_sparse", {"--sync", "diloco", "--compress", "sparse"}, false}),
        testing::Values(Receiver::kRank1)),
    name_of_loss);

class LossWithReplicas : public testing::TestWithParam<Loss> {};

// Replicas are never equal but at ends of epochs: that of the saving rank continues after its last
// step.
TEST_P(LossWithReplicas, SavesTheReplicaThatIsLeft) {
  const auto& [averaging, killed] = GetParam();
  for (const std::string& backend : backends_for(killed)) {
    const TemporaryDirectory folder;
    std::vector<std::string> options = averaging.options;
    options.insert(options.end(), {"--sync-every", "4", "--backend", backend});
    std::string message;
    const std::int64_t step = step_saved_after_loss(folder, options, killed, message);
    EXPECT_GE(step, last_reported_step(folder / "run.metrics")) << message;
    const std::string rank = killed == Receiver::kRank0 ? "1" : "0";
    // Replicas are equal after averagings of all ranks: at ends of epochs, with --stale more often.
    if (step % 6 != 0 && message.find(", the last completed step\n") == std::string::npos) {
      EXPECT_VALUES(message, "replica rank " + rank + "; averaging");
    }
    expect_resumed(folder, step, options);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, LossWithReplicas,
    testing::Combine(testing::Values(Averaging{"gossip", {"--sync", "gossip"}},
                                     Averaging{"streaming",
                                               {"--sync", "streaming", "--sync-overlap", "1"}},
                                     Averaging{"streaming_int8",
                                               {"--sync", "streaming", "--sync-overlap", "1",
                                                "--compress", "int8"}},
                                     Averaging{"late_ranks", {"--sync", "diloco", "--stale", "1"}}),
                     kEachRank),
    name_of_loss);

// The remaining rank's model is all that is left in any process.
TEST_P(LossOfRank, OfIndependentReplicasSavesThatOfTheOther) {
  const TemporaryDirectory folder;
  const std::vector<std::string> options{"--sync", "none"};
  std::string message;
  const std::int64_t step = step_saved_after_loss(folder, options, GetParam(), message);
  EXPECT_GE(step, last_reported_step(folder / "run.metrics")) << message;
  EXPECT_VALUES(message, std::string(GetParam() == Receiver::kRank0 ? "1" : "0") + " --sync");
  EXPECT_VALUES(expect_resumed(folder, step, options), "rank 0 state");
}

// The lost rank had a part of the optimizer's state that no other rank has.
TEST_P(LossOfRank, WithAShardOfTheOptimizerSavesNothing) {
  const TemporaryDirectory folder;
  const CommandResult lost =
      interrupted(folder / "run", {"--shard-optimizer"}, SIGKILL, GetParam());
  EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
  EXPECT_EQ(io::find_newest_checkpoint(folder / "run", nullptr), "") << lost.err;
  EXPECT_VALUES(lost.err, "checkpoint " + (folder / "run") + " step 0 --resume");
  expect_success(run_command(training(folder / "run", "2", {"--spawn", "2", "--resume", "auto"})));
}

}  // namespace
